/* blobfs 0.3.0 to 0.4.0 */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION or ALTER EXTENSION
\echo Use "CREATE EXTENSION blobfs" or "ALTER EXTENSION blobfs UPDATE" to load this file. \quit

-- CREATE EXTENSION runs the script of 0.3.0 first, so new objects are written here only.
