"""Circles of files inside of a folder, and cycles between folders.

A .c file and the .h file of its name are one file.  Edges go from a file to those whose headers it
includes, or (by calls) to those whose functions it names.
"""

import collections
import posixpath
import re

WORD = re.compile(r"\b[A-Za-z_]\w*\b")


def circles(edges):
    """Strongly connected components of more than one node (Tarjan, without recursion)."""
    index, low, on_stack, stack, found = {}, {}, set(), [], []
    for root in sorted(edges):
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            for next_node in successors:
                if next_node not in index:
                    index[next_node] = low[next_node] = len(index)
                    stack.append(next_node)
                    on_stack.add(next_node)
                    work.append((next_node, iter(sorted(edges.get(next_node, ())))))
                    break
                if next_node in on_stack:
                    low[node] = min(low[node], index[next_node])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    members = set()
                    while node not in members:
                        members.add(stack.pop())
                    on_stack -= members
                    if len(members) > 1:
                        found.append(sorted(members))
    return sorted(found, key=lambda members: (-len(members), members))


def stem(name):
    return posixpath.splitext(name)[0]


def resolve(name, included, names):
    """The file that an #include of a file means, if it is one of these."""
    folder = posixpath.dirname(name)
    top = "mount/src" if name.startswith("mount/src/") else name.split("/")[0]
    for candidate in (posixpath.normpath(posixpath.join(folder, included)), included,
                      f"{top}/{included}", f"{top}/include/{included}"):
        if candidate in names:
            return candidate
    return None


def include_edges(sources):
    names = {source.name for source in sources}
    edges = collections.defaultdict(set)
    for source in sources:
        edges[stem(source.name)]
        for included in source.includes:
            target = resolve(source.name, included, names)
            if target and stem(target) != stem(source.name):
                edges[stem(source.name)].add(stem(target))
    return edges


def calls(sources):
    """(file, other file, function of the other that the code of the first names)."""
    owners = collections.defaultdict(set)
    for source in sources:
        for function in source.functions:
            if not function.is_static:
                owners[function.name].add(stem(source.name))
    owner = {name: next(iter(stems)) for name, stems in owners.items() if len(stems) == 1}
    for source in sources:
        if source.name.endswith(".c"):
            for word in sorted(set(WORD.findall(source.code))):
                if word in owner and owner[word] != stem(source.name):
                    yield stem(source.name), owner[word], word


def call_edges(sources):
    """By names of functions in code: a pointer to a function counts as a call of it."""
    edges = collections.defaultdict(set)
    for source in sources:
        edges[stem(source.name)]
    for caller, callee, _ in calls(sources):
        edges[caller].add(callee)
    return edges


def folder_circles(edges):
    """Circles of files, each among the files of one folder."""
    by_folder = collections.defaultdict(dict)
    for node, targets in edges.items():
        by_folder[posixpath.dirname(node)][node] = targets
    return [circle for folder in sorted(by_folder) for circle in circles(by_folder[folder])]


def folder_cycles(edges):
    folders = collections.defaultdict(set)
    for node, targets in edges.items():
        folder = posixpath.dirname(node)
        folders[folder] |= {posixpath.dirname(target) for target in targets} - {folder}
    return circles(folders)
