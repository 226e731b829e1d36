"""Rules of what a release says about itself: META.json after PGXN's specification 1.0.0, and the
version, which is the same in all files.

https://pgxn.org/spec/ has the specification; names and forms of the keys are checked, values as far
as it limits them.  selftest.py has one fault of each kind.
"""

import json
import re

SPECIFICATION = "1.0.0"
# Semantic versions, without build metadata.
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")
# Ranges of versions, such as ">= 1.2.0, != 1.3.1"; 0 is any.
RANGE = re.compile(rf"(((==|!=|<=|>=|<|>)\s*)?({VERSION.pattern})|0)")
# Abbreviations of licenses that PGXN knows.
LICENSES = {"agpl_3", "apache_1_1", "apache_2_0", "artistic_1", "artistic_2", "bsd", "freebsd",
            "gfdl_1_2", "gfdl_1_3", "gpl_1", "gpl_2", "gpl_3", "lgpl_2_1", "lgpl_3_0", "mit",
            "mozilla_1_0", "mozilla_1_1", "openssl", "perl_5", "postgresql", "qpl_1_0", "ssleay",
            "sun", "zlib", "open_source", "restricted", "unrestricted", "unknown"}
PHASES = {"configure", "build", "test", "runtime", "develop"}
RELATIONS = {"requires", "recommends", "suggests", "conflicts"}
NEEDED = {"abstract", "license", "maintainer", "meta-spec", "name", "provides", "version"}
OPTIONAL = {"description", "generated_by", "no_index", "prereqs", "release_status", "resources",
            "tags"}


def is_text(value):
    return isinstance(value, str) and value.strip() != ""


def is_term(value):
    return is_text(value) and len(value) >= 2 and not re.search(r"[\s\x00-\x1f/\\]", value)


def is_version(value):
    return isinstance(value, str) and VERSION.fullmatch(value) is not None


def is_range(value):
    return isinstance(value, str) and all(RANGE.fullmatch(part.strip())
                                          for part in value.split(","))


def is_url(value):
    return is_text(value) and re.match(r"\w+://[^/\s]+", value) is not None


def is_tag(value):
    return is_text(value) and len(value) <= 256 and not re.search(r"[\x00-\x1f/\\]", value)


def as_list(value):
    return value if isinstance(value, list) else [value]


def key_complaints(where, value, needed, optional):
    """Keys that lack, and keys that are neither known nor custom."""
    if not isinstance(value, dict):
        yield f"{where}: is no object"
        return
    for key in sorted(needed - value.keys()):
        yield f"{where}: no {key}"
    for key in value.keys() - needed - optional:
        if not re.match(r"[xX]_", key):
            yield f"{where}: unknown key {key}"


def provides_complaints(provides, files):
    if not isinstance(provides, dict) or not provides:
        yield "provides: names no extension"
        return
    for name, extension in provides.items():
        where = f"provides: {name}"
        if not is_term(name):
            yield f"{where}: is no term"
        yield from key_complaints(where, extension, {"file", "version"}, {"abstract", "docfile"})
        if not isinstance(extension, dict):
            continue
        if not is_version(extension.get("version")):
            yield f"{where}: version is none"
        for key in ("file", "docfile"):
            if key in extension and extension[key] not in files:
                yield f"{where}: {key} {extension[key]} is not there"


def prereqs_complaints(prereqs):
    if not isinstance(prereqs, dict):
        yield "prereqs: is no object"
        return
    for phase, relations in prereqs.items():
        if phase not in PHASES or not isinstance(relations, dict):
            yield f"prereqs: {phase} is no phase"
            continue
        for relation, terms in relations.items():
            if relation not in RELATIONS or not isinstance(terms, dict):
                yield f"prereqs: {phase}: {relation} is no relation"
                continue
            for term, versions in terms.items():
                if not is_term(term) or not is_range(versions):
                    yield f"prereqs: {phase}: {relation}: {term} {versions}: no term with versions"


def meta_complaints(meta, files):
    """What is wrong with META.json, in a tree with these files."""
    yield from key_complaints("META.json", meta, NEEDED, OPTIONAL)
    if not isinstance(meta, dict):
        return
    if not is_term(meta.get("name")):
        yield "name: is no term"
    if not is_version(meta.get("version")):
        yield "version: is none"
    for key in ("abstract", "description", "generated_by"):
        if key in meta and not is_text(meta[key]):
            yield f"{key}: is no text"
    for maintainer in as_list(meta.get("maintainer")):
        if not is_text(maintainer):
            yield "maintainer: is no text"
    license_names = meta.get("license")
    if isinstance(license_names, dict):
        if not license_names or not all(map(is_url, license_names.values())):
            yield "license: an object has a URL for each name"
    elif not license_names or not set(as_list(license_names)) <= LICENSES:
        yield "license: is none that PGXN knows"
    if meta.get("release_status", "stable") not in {"stable", "testing", "unstable"}:
        yield "release_status: is none"
    for tag in as_list(meta.get("tags", [])):
        if not is_tag(tag):
            yield f"tags: {tag} is none"
    specification = meta.get("meta-spec")
    if not isinstance(specification, dict) or specification.get("version") != SPECIFICATION or \
            not is_url(specification.get("url", "https://pgxn.org")):
        yield f"meta-spec: is not {SPECIFICATION} with a URL"
    yield from provides_complaints(meta.get("provides"), files)
    yield from prereqs_complaints(meta.get("prereqs", {}))


def check_meta(tree):
    """META.json is valid, and what it names exists."""
    text = tree.files.get("META.json", "")
    try:
        meta = json.loads(text)
    except ValueError as error:
        yield f"META.json: {error}"
        return
    for complaint in meta_complaints(meta, tree.files.keys()):
        yield f"META.json: {complaint}"


# Files that say the version, as the first group.
VERSIONS = [("blobext.control", r"^default_version = '(.*)'$"),
            ("mount/sql/blobfs.control", r"^default_version = '(.*)'$"),
            ("plpython/sql/blobext_plpython3u.control", r"^default_version = '(.*)'$"),
            ("CHANGELOG.md", r"^## \[([^]]+)\] - (?:\d{4}-\d\d-\d\d|Unreleased)$"),
            ("debian/changelog", r"\Ablobext \((.*)-[^-]+\) "),
            ("SECURITY.md", r"^\| (\d+\.\d+)\b.*\| yes \|$")]


def check_release_version(tree):
    """The version is the same wherever it is said; SECURITY.md says it without the last number."""
    try:
        meta = json.loads(tree.files.get("META.json", ""))
        version = meta["version"]
        said = [("META.json, provides", extension["version"])
                for extension in meta["provides"].values()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return                      # check_meta complains
    for name, pattern in VERSIONS:
        path = tree.root / name
        match = path.exists() and re.search(pattern, path.read_text(), re.M)
        said.append((name, match[1] if match else None))
    for name, its_version in said:
        if its_version != version and (name != "SECURITY.md" or
                                       version.rpartition(".")[0] != its_version):
            yield f"{name}: version {its_version}, META.json has {version}"
