"""Tests of the checks that read more than a line: what each must find, and what it must pass."""

import copy
import pathlib
import sys

import csource
import docs
import graph
import language
import measure
import prose
import release
import sqltext
import targets
import testnames
import tidy
from tree import Tree

# Sentences by pattern; each must be found as that, and as nothing else.
FOUND = {
    "who": ["Who finds no place on the list syncs by itself.",
            "The lock is held by who writes pages.",
            "Whoever made it may have died.",
            "No lock: who may read them has seen that they were put.",
            "The extents, for who pins the frame.",
            "A reader who finds the frame claimed has a miss.",
            "One sync for all who wait for it.",
            "Take it from whom it belongs to."],
    "what is": ["What is stored later needs no thought.",
                "It frees what was listed.",
                "Write what is in the buffer, and the data behind it.",
                "The figures of what are extents."],
    "what verb": ["Take what waits, or grow.",
                  "Whether whatever holds it may go."],
    "What": ["What waits must go.",
             "What the cache does not hold is read.",
             "The end. What a statement needs is noted before."],
    "so many": ["Reserve memory for so many blocks."],
    "he": ["A backend keeps it until he lets go.", "Memory of his process."],
    "nobody": ["Nobody else writes it.", "It waits for somebody."],
    "for ever": ["An entry stays for ever."],
}
PASSED = [
    "Users who store large values set it.",
    "The role who may connect is a superuser.",
    "Here is decided who may call it.",
    "The documentation says who may connect, and who can change settings.",
    "Who may connect?",
    "What is a blob, and what was it before?",
    "The table says what to do.",
    "The message says what is missing.",
    "It remembers what it has seen.",
    "What the map can address: blocks.",
    "So many rows that the cache is full.",
    "The header, the rest, and them.",
    "A value, whose size is known, goes to the whole of it.",
    "What a slot may hold: pages.",
    "For every value, and there are others.",
]

C_FILE = """/*
 * a/a.c
 *\t  The first one.  It calls
 * what was listed.
 */
#include "a/a.h"
#include "a/b.h"
/* #include "a/none.h" */

static const char *text = "/* what is here */ }";

static int
short_one(void)
{
\treturn 1;
}

/* Says why. */
#ifdef SOME
int
a_commented(int parameter,
\t\t\tchar other)
{
%s
}
#endif

int
a_in_header(void)
{
%s
}

int
a_without(void)
{
%s
\tb_called();\t\t/* what is beside */
}
""" % (("\tshort_one();\n" * 20).rstrip("\n"), ("\tshort_one();\n" * 20).rstrip("\n"),
       ("\tshort_one();\n" * 13).rstrip("\n"))
A_HEADER = """/* Of this folder. */
#include "core/c.h"

/* One comment for two. */
extern int\ta_commented(int parameter,
\t\t\t\t\t\tchar other);
extern int\ta_in_header(void);

extern int\ta_without(void);
"""
B_FILE = """int
b_called(void)
{
\treturn a_in_header() + c_called();
}
"""
SMALL_TREE = {
    "src/a/a.c": C_FILE, "src/a/a.h": A_HEADER, "src/a/b.c": B_FILE,
    "src/a/b.h": "extern int b_called(void);\n", "src/a/README.md": "# a\n",
    "src/core/c.c": "int\nc_called(int short_one)\n{\n\treturn short_one;\n}\n", "src/core/c.h": "",
}

MARKDOWN = """# What is a heading

Text with `what is code` and
what was text.
<!-- what is hidden -->

~~~
what is code
~~~

| who | what to do |
|---|---|
| a | what is in a cell |

- an item says
- what is in an item
"""

META = {
    "name": "blobext", "version": "1.2.3", "abstract": "A", "maintainer": ["M <m@example.org>"],
    "license": "postgresql", "meta-spec": {"version": "1.0.0", "url": "https://pgxn.org/spec"},
    "provides": {"blobext": {"file": "a.sql", "version": "1.2.3", "docfile": "README.md"}},
    "prereqs": {"runtime": {"requires": {"PostgreSQL": ">= 15.0.0, != 16.0.0", "pgTAP": "0"}}},
    "tags": ["large objects"], "release_status": "testing", "x_ours": 1,
}
# A place in META, and what makes it wrong there; None removes the key.
META_FAULTS = [
    (["name"], None), (["name"], "a b"), (["name"], "a"), (["version"], "1.2"),
    (["version"], "01.2.3"), (["abstract"], ""), (["maintainer"], None), (["maintainer"], [""]),
    (["license"], "gpl"), (["license"], []), (["license"], {"Ours": "no URL"}),
    (["meta-spec", "version"], "2.0.0"), (["meta-spec", "url"], "pgxn.org"), (["provides"], {}),
    (["provides", "blobext", "file"], "b.sql"), (["provides", "blobext", "docfile"], "b.md"),
    (["provides", "blobext", "file"], None), (["provides", "blobext", "version"], "1"),
    (["provides", "blobext", "other"], 1), (["prereqs", "use"], {}),
    (["prereqs", "runtime", "needs"], {}),
    (["prereqs", "runtime", "requires", "pgTAP"], "~1.0.0"), (["tags"], ["a/b"]),
    (["tags"], ["a" * 257]), (["release_status"], "released"), (["other"], 1),
]

failures = 0


class Fixture:
    """A tree in memory."""

    matching = Tree.matching

    def __init__(self, files, root="/nonexistent"):
        self.files = files
        self.root = pathlib.Path(root)


def check(is_right, what):
    global failures
    if not is_right:
        print(f"not ok - tidy's own tests: {what}")
        failures += 1


def equal(got, expected, what):
    check(got == expected, f"{what}: {got!r}, not {expected!r}")


def patterns_of(sentence, name="src/a/a.c"):
    return [pattern for _, _, pattern, _ in language.check({name: f"/* {sentence} */\n"}, [])]


def test_sentences():
    for pattern, sentences in FOUND.items():
        for sentence in sentences:
            equal(patterns_of(sentence), [pattern], sentence)
    for sentence in PASSED:
        equal(patterns_of(sentence), [], sentence)
    check(set(FOUND) == set(language.PATTERNS) - {"allowed"}, "a pattern has no sentence")
    # pronouns are people in documents, processes in the sources
    equal(patterns_of("For those who run a server."), ["who"], "those who, in src")
    equal(list(language.check({"README.md": "For those who run a server.\n"}, [])), [],
          "those who, in a document")


def test_allowed():
    files = {"src/a.c": "/* It waits for ever. */\n"}
    equal(list(language.check(files, [("src/a.c", "waits for ever")])), [], "an exception")
    equal([pattern for _, _, pattern, _ in language.check(files, [("src/b.c", "for ever")])],
          ["for ever", "allowed"], "an exception that is for nothing")


def places(name, text):
    return [(line, pattern) for _, line, pattern, _ in language.check({name: text}, [])]


def test_files():
    """Where sentences are found in each kind of file, and where not."""
    def line_of(word):
        return C_FILE[:C_FILE.index(word)].count("\n") + 1

    equal(places("src/a/a.c", C_FILE), [(4, "what is"), (line_of("beside"), "what is")],
          "C")
    equal(places("docs/a.md", MARKDOWN), [(4, "what is"), (11, "who"), (13, "what is"),
                                          (16, "what is")], "Markdown")
    equal(places("test/a.sql", "SELECT 'what is -- what is'; -- what was\n/* what\nis */\n"),
          [(1, "what is"), (2, "what is")], "SQL")
    equal(places("test/b.sql", "-- it says\nSELECT 1;\n-- what was\n"), [(3, "what is")],
          "two comments")
    equal(places("test/a.pl", "# what\n# is here\nmy $a = 'x # what is'; # what was\n$#what;\n"),
          [(1, "what is"), (3, "what is")], "Perl")
    equal(places("dev/a", "#!/bin/what is\n# for ever\n"), [(2, "for ever")], "a script")
    equal(places("a.py", '"""First.\n\nWhat is it.\n"""\n'), [(3, "what is")], "Python")
    equal(list(prose.blocks("a.out", "what is")), [], "no prose")


def test_functions():
    source = csource.source("src/a/a.c", C_FILE)
    equal([function.name for function in source.functions],
          ["short_one", "a_commented", "a_in_header", "a_without"], "functions")
    equal([function.lines for function in source.functions], [3, 22, 22, 16], "lines of functions")
    equal([function.has_comment for function in source.functions], [False, True, False, False],
          "comments of functions")
    equal(source.includes, ["a/a.h", "a/b.h"], "includes")
    documented = csource.source("src/a/a.h", A_HEADER).documented_prototypes()
    equal(documented, {"a_commented", "a_in_header"}, "comments of prototypes")
    equal(list(targets.check_function_comments(Fixture(SMALL_TREE))),
          [f"src/a/a.c:{source.functions[3].brace_line}: a_without, 16 lines, has no comment"],
          "function_comments")
    one_less = C_FILE.replace("\tb_called();\t\t/* what is beside */\n", "")
    equal(list(targets.check_function_comments(Fixture({"src/a/a.c": one_less,
                                                        "src/a/a.h": A_HEADER}))), [],
          "function_comments, 15 lines")


def test_circles():
    sources = measure.sources_of(SMALL_TREE)
    by_call, by_include = graph.call_edges(sources), graph.include_edges(sources)
    equal(graph.folder_circles(by_call), [["src/a/a", "src/a/b"]], "circles by calls")
    equal(by_call["src/core/c"], set(), "a name of a static function elsewhere")
    equal(graph.folder_circles(by_include), [], "circles by includes")
    equal(graph.folder_cycles(by_include), [], "cycles of folders")
    upwards = measure.sources_of(SMALL_TREE | {"src/core/c.h": '#include "a/b.h"\n'})
    equal(graph.folder_cycles(graph.include_edges(upwards)), [["src/a", "src/core"]],
          "a cycle of folders")
    included = measure.sources_of(SMALL_TREE | {"src/a/b.h": '#include "a/a.h"\n'})
    equal(graph.folder_circles(graph.include_edges(included)), [["src/a/a", "src/a/b"]],
          "a circle by includes")
    ring = {"1": {"2"}, "2": {"3"}, "3": {"1", "4"}, "4": {"5"}, "5": {"4"}, "6": {"6", "1"}}
    equal(graph.circles(ring), [["1", "2", "3"], ["4", "5"]], "circles of a graph")


def test_mount():
    """The rules of src hold in mount/src, whose includes begin there."""
    def tree(**files):
        return Fixture({f"mount/src/{name.replace('__', '/')}.{suffix}": text
                        for name, (suffix, text) in files.items()})

    sources = measure.sources_of(tree(
        reading__a=("c", '#include "reading/b.h"\n'), reading__b=("h", '#include "common/c.h"\n'),
        common__c=("h", "")).files)
    equal(graph.include_edges(sources)["mount/src/reading/a"], {"mount/src/reading/b"}, "includes")
    equal([complaint.partition(": ")[2] for complaint in tidy.check_layers(tree(
        common__a=("c", '#include "requests/b.h"\n#include "c.h"\n'),
        requests__b=("c", '#include "common/a.h"\n'), other__a=("c", ""),
        main=("c", '#include "requests/b.h"\n')))],
          ["layer common includes requests, which is above it", "c.h is in no layer",
           "folder other has no place in the order of layers"], "layers")
    long = "\n" * (tidy.MAX_FILE_LINES + 1)
    lengths = tree(common__a=("c", long), common__b=("c", long[1:]))
    for may_be_long, complaints in (({}, 1), ({"mount/src/common/a.c": "one thing"}, 0),
                                    ({"mount/src/common/a.c": "", "mount/src/common/b.c": ""}, 1),
                                    ({"mount/src/common/a.c": "", "src/none.c": ""}, 1)):
        equal(len(list(tidy.check_file_lengths(lengths, may_be_long))), complaints,
              f"lengths of files beside {sorted(may_be_long)}")
    equal(len(list(targets.check_function_comments(Fixture({
        "mount/src/common/a.c": SMALL_TREE["src/a/a.c"]})))), 2, "function_comments")


def complaints_of_list(circles, line):
    wrong = []
    known = targets.read_circles(line, wrong)
    return len(wrong) + len(list(targets.compare_circles("calls", circles, known)))


def test_circles_list():
    circle = [["src/a/a", "src/a/b"]]
    equal(complaints_of_list(circle, "# some\ncalls src/a: b a -- twins\n"), 0, "a listed circle")
    equal(complaints_of_list(circle, ""), 1, "a circle that is not listed")
    equal(complaints_of_list(circle, "includes src/a: a b -- twins"), 1, "one of another kind")
    equal(complaints_of_list(circle, "calls src/a: a b --"), 2, "no reason")
    equal(complaints_of_list([["src/a/a", "src/a/b", "src/a/c"]], "calls src/a: a b -- twins"), 1,
          "a circle that has grown")
    equal(complaints_of_list(circle, "calls src/a: a b c -- three"), 1, "one that has shrunk")
    equal(complaints_of_list([], "calls src/a: a b -- twins"), 1, "one that is gone")
    # two circles have become one
    equal(complaints_of_list([["src/a/a", "src/a/b", "src/a/c", "src/a/d"]],
                             "calls src/a: a b -- twins\ncalls src/a: c d -- twins"), 2, "merged")


def test_readme():
    limit = targets.MAX_README_LINES
    equal(list(targets.check_readme_length(Fixture({"README.md": "x\n" * (limit - 1)}))), [],
          "a README")
    equal(len(list(targets.check_readme_length(Fixture({"README.md": "x\n" * limit})))), 1,
          "a long README")


def test_document_columns():
    longest = "x" * docs.MAX_DOCUMENT_COLUMNS
    for name, text, count in (
            ("src/a/README.md", longest, 0), ("src/a/README.md", "a\n" + longest + "x", 1),
            ("src/a/README.md", "|" + longest, 0), ("docs/a.md", longest + "x", 0),
            ("src/a/README.md", "```\n" + longest + "x\n```\n", 0)):
        equal(len(list(docs.check_document_columns(Fixture({name: text})))), count,
              f"columns of {name}: {text[:9]}")


def test_invariants():
    source = "void\na(void)\n{\n\tAssert(true);\n}\n\nvoid\nb(void)\n{\n}\n"
    for text, complaints in (("*Asserted:* `a()`.", 0), ("*Not asserted:* it is a rule.", 0),
                             ("*Asserted:* `b()`.", 1), ("*Asserted:* by all.", 1), ("`a()`.", 1)):
        readme = f"## Invariants\n\n1. **One**: x.\n   {text}\n\n## Locks\n"
        equal(len(list(targets.check_invariants(Fixture({
            "src/README.md": readme, "src/a/a.c": source})))), complaints, text)


def test_old_words():
    text = "/* Content is secured; security. */\nint\tblob_behind_put(void);\n"
    equal(list(language.old_words({"src/a/a.h": text})),
          [("behind (deferred)", "src/a/a.h", 0, 1), ("secured", "src/a/a.h", 1, 0)], "old words")


def test_meta():
    files = {"a.sql", "README.md"}
    equal(list(release.meta_complaints(META, files)), [], "a sound META.json")
    equal(len(list(release.meta_complaints([], files))), 1, "a list as META.json")
    for path, value in META_FAULTS:
        meta = copy.deepcopy(META)
        place = meta
        for key in path[:-1]:
            place = place[key]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        check(list(release.meta_complaints(meta, files)), f"META.json, {path}: {value}")


def test_sql_strings():
    for sql, fault in (
            ("SELECT a.b FROM pg_catalog.t AS a WHERE a.b OPERATOR(pg_catalog.=) 'x = y'", None),
            ("SELECT coalesce(t.c, $1::bigint)::%s.blobstate FROM %s AS t LIMIT 1", None),
            ("SELECT a.b = 1", "operator"), ("SELECT a || 'b' WHERE true", "operator"),
            ("SELECT 1 WHERE a IN (1)", "operator"), ("SELECT $1::int8 WHERE true", "type"),
            ("SELECT length($1) WHERE true", "function"), ("SELECT x FROM pg_class AS c", "table")):
        source = 'f("' + sql[:10] + '" EQ\n\t"' + sql[10:] + '");'
        equal([what for _, part in sqltext.statements(source) for what, _ in sqltext.faults(part)],
              [fault] if fault else [], sql)


# A source, and the names that the rule must find there, as far as the source has them.
TEST_NAMES = {
    "test/t/a.pl": ("""sub has { my ($node, $name) = @_; }
sub is_there
{
	my ($count, $name) = @_;
	return is($count, 1, $name);
}
# is(1, 1, 'no');
my $text = q(is(1, 1, 'no')) . "is(1, 1, 'no')";
$text =~ s{is(}{ok(1, 'no')};
is(join(',', (1, 2)), '1,2', 'one');
ok($text =~ /,|'/ ? 1 : 0,
	"two $text");
is_there(1, $_ ? 'three' : 'thr' . 'ee') if $text lt 'x';
subtest "four: $text->{a}[1]" => sub { pass('five') };
like(<<'END', qr/'x'/, sprintf('six %s', $text));
ok(1, 'no');
END
fails_with($text, 'a', 'b', qr/c/, 'seven');
ok(1);
""", ["one", "two \0", "three", "three", "four: \0", "five", "six \0", "seven", None]),
    "test/t/A.pm": ("""sub fails_with
{
	my ($node, $sql, $state, $like, $name, %options) = @_;
	return subtest $name => sub { };
}
""", []),
    "test/pgtap/a.sql": ("""-- SELECT ok(true, 'no');
CREATE FUNCTION holds(value int, name text) RETURNS text LANGUAGE sql AS $$
	SELECT is(value, 1, name) $$;
SELECT holds(1, 'one');
SELECT throws_ok($$SELECT 'ok('$$, '22023', 'not (a name', 'two');
SELECT throws_ok('SELECT 1', '22023', 'no');
SELECT is(a, 'x', 'it''s ' || a) FROM (VALUES ('no')) AS t (a);
CREATE INDEX ON ok (a);
SELECT is_empty($$SELECT 1$$);
""", ["one", "two", None, "it's \0", None]),
    "test/python/test_a.py": ("""class A:
    def test_short(self):
        \"\"\"A comment that is a sentence.\"\"\"

    def test_a_name_of_five_words(self):
        pass

    def test_b(self):
        pass
""", ["A comment that is a sentence.", "a name of five words", "b"]),
    "test/suites/dump.sh": ("""# test/run dump: it.
same()
{
	check "$1" "$2" 3
}
check 'one' 1 1
	same "two $a" 1
""", ["one", "two \0"]),
}


def test_test_names():
    tree = Fixture({name: text for name, (text, _) in TEST_NAMES.items()})
    found = {name: [] for name in TEST_NAMES}
    for name, _, names in testnames.names_of(tree):
        found[name] += names or [None]
    for name, (_, expected) in TEST_NAMES.items():
        equal(found[name], expected, f"names of tests in {name}")
    for name, complaints in (("a value is there", 0), ("value is there", 1), ("\0: a value", 1),
                             ("\0: a value is there", 0), ("a \0 is there", 0),
                             ("it is there again", 1), ("so.many values are there", 0),
                             ("... is there once again", 1), ("1 - 2 - 3", 1)):
        source = f"ok(1, '{name}');\n".replace("\0", "' . $a . '")
        equal(len(list(testnames.check_test_names(Fixture({"test/t/a.pl": source})))), complaints,
              f"complaints about {name!r}")


def test_switch():
    names = {rule.__name__.removeprefix("check_") for rule in tidy.RULES}
    check(tidy.NOT_YET <= names, f"no such rules: {tidy.NOT_YET - names}")


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
    if not failures:
        print("ok - tidy's own tests")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
