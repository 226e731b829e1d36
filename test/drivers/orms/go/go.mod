module orms

go 1.21
