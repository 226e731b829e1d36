"""The text files of a source tree."""

SKIPPED_DIRECTORIES = {".git", "results", "tmp_check", "log", "__pycache__", "cluster"}
TEXT_SUFFIXES = {".c", ".h", ".sql", ".pl", ".pm", ".py", ".sh", ".md", ".control", ".conf",
                 ".json", ".yml", ".awk"}
TEXT_NAMES = {"Makefile", "README"}


class Tree:
    def __init__(self, root):
        self.root = root
        self.files = {}
        for path in sorted(root.rglob("*")):
            relative = path.relative_to(root)
            if SKIPPED_DIRECTORIES & set(relative.parts) or not path.is_file():
                continue
            if path.suffix in TEXT_SUFFIXES or self.is_script(path) or path.name in TEXT_NAMES:
                self.files[relative.as_posix()] = path.read_text(errors="replace")

    @staticmethod
    def is_script(path):
        if path.suffix:
            return False
        with path.open("rb") as file:
            return file.read(2) == b"#!"

    def matching(self, *suffixes, under=""):
        return [(name, text) for name, text in self.files.items()
                if name.startswith(under) and name.endswith(suffixes)]
