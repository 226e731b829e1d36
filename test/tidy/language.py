"""Patterns of language that comments and documents do without.  See PATTERNS for what each finds.

A finding is (file, line, pattern, words).  tidy.py complains of them, dev/measure --language
counts them.
"""

import re

import csource
import prose

# Files that must hold the patterns, and names of people's works.
SKIPPED = re.compile(r"test/tidy/|LICENSE$|expected/")

# (file, words of the sentence): findings that stay, because the sentence is right as it is.
ALLOWED = []

# Antecedents that are people: "users who", and the pronouns for people.
PEOPLE = set("""user users role roles owner owners people person persons superuser superusers
    administrator administrators developer developers operator operators member members maintainer
    maintainers author authors contributor contributors reviewer reviewers successor somebody's
    those anyone everyone someone one they""".split())
# The same pronouns stand for processes in src.
PRONOUNS = set("those anyone everyone someone one they".split())

# "says who may call it", "decides who wins": an indirect question, not a subject.
ASKING = set("""say says said tell tells told show shows shown ask asks asked decide decides decided
    know knows known see sees learn learns find finds found out explain explains describe
    describes document documents state states define defines defined check checks list lists name
    names here about""".split())

BEGIN = r"(?:^[\W_]*|(?<=[.;:!?]\s)[\"'(\[*_]*|(?<=\|\s))"
AUXILIARY = r"(?:is|was|are|were|isn't|wasn't|aren't|weren't)"
# Verbs that make "what" the subject of its clause.
CLAUSE_VERB = r"""(?:has|had|have|can|cannot|could|may|might|must|will|would|should|needs?|
    lies|lives?|follows|followed|precedes|preceded|remains|remained|belongs|belonged|comes|came|
    goes|went|keeps|kept|makes|made|holds|held|reads|writes|takes|took|calls|called|uses|used|waits|
    depends|changes|changed|counts|matters|stays|stayed|exists|existed|stands|stood|looks|knows|
    refers|starts|started|ends|ended|costs|does|did|says|becomes|became|falls|fits|decides|leads|
    left|leaves|runs|ran|gives|gave|sees|saw|begins|began|lacks|differs)"""
MAIN_VERB = re.compile(r"\b(?:is|are|was|were|be|has|had|have|can|cannot|may|must|will|does|do|did|"
                       r"stays?|goes|comes|gets?|keeps?|needs?|takes?|makes?|becomes?)\b")
LABEL = re.compile(rf"(?!.*\b{AUXILIARY}\b)(?:[\w'()]+ ){{2,4}}(?:can|may|must|will|cannot) \w+$")
MODAL = {"may", "can", "could", "must", "should", "might"}

WHO = re.compile(r"(?P<before>[\w'’-]*)(?P<gap>[^\w]*)\b(?P<who>who|whom|whoever|whomever)\b"
                 r"\s*(?P<after>[\w'-]*)", re.I | re.S)
WHAT_IS = re.compile(rf"\b(?:what|whatever)\s+(?:else\s+)?{AUXILIARY}\b", re.I)
WHAT_VERB = re.compile(rf"\bwhat(?:ever)?\s+(?:else\s+)?{CLAUSE_VERB}\b", re.I | re.X)
WHAT_BEGIN = re.compile(r"^[\W_]*What(?:ever)?\s+(?!to\b|if\b|about\b)(\w[^.;:!?]*)", re.S)
QUESTION_MARK = re.compile(r"\?[\"')\]*_]*\s*$")


def previous_words(sentence, offset, count):
    return re.findall(r"[\w'’-]+", sentence[:offset])[-count:]


def is_asked(sentence, offset):
    """Does an indirect question begin at this offset ("says what is missing")?"""
    words = [word.lower() for word in previous_words(sentence, offset, 2)]
    return bool(words) and words[-1] in ASKING and sentence[:offset].rstrip()[-1:] not in ".;:"


def find_who(name, sentence):
    for match in WHO.finditer(sentence):
        before, gap = match.group("before").lower(), match.group("gap").strip()
        who, after = match.group("who").lower(), match.group("after").lower()
        begins = not before or gap.rstrip("\"'([*_")[-1:] in {".", ";", ":", "?", "!", "|", "-"}
        in_source = name.startswith("src/")
        if who.startswith("who") and not who.endswith("ever") and not begins:
            if before in PEOPLE and not (in_source and before in PRONOUNS):
                continue
            if is_asked(sentence, match.start("who")):
                continue
            if after in MODAL and before in {"and", "or"} or \
                    after in MODAL and before in {"of", "on"} and not in_source:
                continue
        yield match.start("who"), " ".join(match.group().split())


def find_what_is(name, sentence):
    for match in WHAT_IS.finditer(sentence):
        if not is_asked(sentence, match.start()):
            yield match.start(), " ".join(match.group().split())


def find_what_verb(name, sentence):
    is_subject = any(find_what_begin(name, sentence))
    for match in WHAT_VERB.finditer(sentence):
        if not is_asked(sentence, match.start()) and \
                not (is_subject and match.group().startswith("What")):
            yield match.start(), " ".join(match.group().split())


def find_what_begin(name, sentence):
    match = WHAT_BEGIN.match(sentence)
    if not match or WHAT_IS.match(sentence.lstrip(" \n\t\"'([*_")):
        return
    clause = " ".join(match.group(1).split())
    # "What the map can address: ..." is a label, not the subject of a sentence
    if MAIN_VERB.search(clause.partition(" ")[2]) and not LABEL.match(clause):
        yield match.start(1) - len("What "), " ".join(match.group().split()[:4])


def words(expression):
    pattern = re.compile(expression, re.I)

    def find(name, sentence):
        for match in pattern.finditer(sentence):
            yield match.start(), " ".join(match.group().split())
    return find


# name: (what it finds, what to write instead, finder, questions pass)
PATTERNS = {
    "who": ("who, whoever, whom without a person", "name the component", find_who, True),
    "what is": ("a noun made of \"what is\"", "name the thing", find_what_is, True),
    "what verb": ("a noun made of \"what\" and another verb", "name the thing", find_what_verb,
                  True),
    "What": ("\"What ...\" as the subject of a sentence", "name the thing", find_what_begin, True),
    "so many": ("\"so many\" for a number", "name the number",
                words(r"\bso\s+many\b(?!\s+\w+\s+that\b)"), False),
    "he": ("he, him, his, himself", "it, its", words(r"\b(?:he|him|his|himself|she|her)\b"), False),
    "nobody": ("nobody, somebody, anybody, everybody", "no process, a backend, another session",
               words(r"\b(?:nobody|somebody|anybody|everybody)\b(?:'s)?(?:\s+else\b)?"), False),
    "allowed": ("an entry of ALLOWED that allows nothing", "take it off language.py's list",
                lambda name, sentence: (), False),
    "for ever": ("for ever", "forever, or for how long", words(r"\bfor\s+ever\b"), False),
}


# Found, and shown by dev/measure, but no failure: some are right as they are.
SHOWN_ONLY = {"what verb"}


def check_block(name, block):
    for offset, sentence in block.sentences():
        is_question = bool(QUESTION_MARK.search(sentence))
        for pattern, (_, _, find, questions_pass) in PATTERNS.items():
            if questions_pass and is_question:
                continue
            # a heading may begin with a question's word
            if block.is_heading and pattern in {"What", "what is", "what verb"} and \
                    re.match(r"\W*what\b", sentence, re.I):
                continue
            for start, found in find(name, sentence):
                yield block.line_of(offset + start), pattern, found, sentence


def find_all(files):
    """(file, line, pattern, words, sentence) of each finding, those of ALLOWED included."""
    for name, text in files.items():
        if SKIPPED.search(name):
            continue
        for block in prose.blocks(name, text):
            for line, pattern, found, sentence in check_block(name, block):
                yield name, line, pattern, found, " ".join(sentence.split())


def check(files, allowed=None):
    """Findings in files, a dictionary of texts by name; and entries of ALLOWED without one."""
    allowed = ALLOWED if allowed is None else allowed
    unused = set(allowed)
    for name, line, pattern, found, sentence in find_all(files):
        passes = {(file, part) for file, part in allowed if name == file and part in sentence}
        unused -= passes
        if not passes:
            yield name, line, pattern, found
    for file, part in sorted(unused):
        yield file, 0, "allowed", part


# Words of the glossary in src/README.md that are to disappear: in prose, and in names of code.
# "store" as a verb is not here: the word stays, with another meaning.
OLD_WORDS = {
    "space (of a store)": (r"\b(?:a|each|every|per|one|another) space\b|\bspace's\b|\bspaces\b|"
                           r"\bfile of the space\b|\bspace/\w+\.[ch]\b",
                           r"\bBlobSpace\w*|\bblob_space_\w+|\bBLOB_SPACE_\w+|\bspace\b"),
    "behind (deferred)": (r"\b(?:written|writes?|write|writing|goes|put)[ -]behind\b|\bbehind\.c\b",
                          r"\w*behind\w*|\w*Behind\w*"),
    "unwritten, deferred pages": (r"\bunwritten\b|\bdeferred pages?\b", r"\w*unwritten\w*"),
    "secured": (r"\bsecur(?:e|es|ed|ing)\b", r"\w*secured?\w*"),
    "ring (pipeline)": (r"\brings?\b|\bring\.[ch]\b", r"\b(?:\w+_)?ring(?:_\w+)?\b"),
    "gather": (r"\bgather(?:s|ed|ing|er)?\b", r"\w*gather\w*|\w*Gather\w*"),
    "carriers": (r"\bcarriers?\b", r"\w*carrier\w*|\w*Carrier\w*"),
    "leftovers": (r"\bleft-?overs?\b", r"\w*leftover\w*|\w*Leftover\w*"),
    "unresolved": (r"\bunresolved\b", r"\w*unresolved\w*|\w*Unresolved\w*"),
    "missing (unlogged)": (r"\bmissing\.[ch]\b|\bmissing content\b",
                           r"\b(?:blob_)?missing_\w+|\bBlobMissing\w*"),
    "copies (origin)": (r"\bcopies\.[ch]\b", r"\bblob_copies\w*|\bBlobCopies\w*"),
    "publish": (r"\bpublish(?:es|ed|ing)?\b", r"\w*publish\w*|\w*Publish\w*"),
    "rest (of a value)": (r"\b(?:a|with|of|of the|its) rest\b|\bthe rest (?:is|in|behind|that)\b|"
                          r"\brest of (?:a|the|its) value\b", r"\b(?:\w+_)?rest(?:_\w+)?\b"),
    "heads (of extents)": (r"\bheads\b|\bhead of (?:(?:an?|the|its) )?extents?\b",
                           r"\b(?:\w+_)?heads\b"),
    "fill mark": (r"\bfill[ -]marks?\b", r"\w*fill_?mark\w*|\w*FillMark\w*"),
}
# The kernel's rings are called so.
OLD_WORDS_PASS = {"ring (pipeline)": re.compile(r"src/io/|test/unit/|src/core/")}


def old_words(files):
    """(word, file, in prose, in code) for each file that has some."""
    compiled = {word: (re.compile(in_prose, re.I), re.compile(in_code))
                for word, (in_prose, in_code) in OLD_WORDS.items()}
    for name, text in files.items():
        if SKIPPED.search(name) or name.startswith("bench/results"):
            continue
        spoken = " \n".join(block.text for block in prose.blocks(name, text))
        spoken = " ".join(spoken.split())
        code = csource.source(name, text).code if name.endswith((".c", ".h")) else ""
        for word, (in_prose, in_code) in compiled.items():
            if word in OLD_WORDS_PASS and OLD_WORDS_PASS[word].search(name):
                continue
            counts = len(in_prose.findall(spoken)), len(in_code.findall(code))
            if any(counts):
                yield word, name, *counts
