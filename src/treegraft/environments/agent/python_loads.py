"""What importing a Python module loads, in order: imports and ctypes libraries at module level, read from its syntax
tree. Runs nothing, and does not know which files are worth reading (the caller) nor what a name leads to.

One event is a list [kind, name, detail, guards]:
  kind    import  a module: `name`, absolute and dotted
          from    attributes or submodules `detail` (comma separated) of module `name`
          load    ctypes: `name` is a library name, or a path as `file:tail/of/it.so` (`*` in it is a glob pattern);
                  detail "global" (RTLD_GLOBAL) or "local"
          flags   sys.setdlopenflags: detail "global" or "local"
  guards  outermost first. `try:N:KINDS` inside try block N, whose handlers swallow I (ImportError), O (OSError) or
          M (ModuleNotFoundError); `except:N` in a handler of try N, run only when its block failed; `python:OP:3.12`
          under a comparison of sys.version_info; `if` under a condition that is not known.
"""

from __future__ import annotations

import ast
import contextlib
import os
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

Event = List[Any]  # [kind, name, detail, guards]
Guards = Tuple[str, ...]
MAX_BYTES = 200_000
MAX_EVENTS = 400
MAX_STEPS = 20_000  # a chain of calls, or of names that stand for lists of names, can double at every link
MAX_FILES_NATIVE = 24
MAX_FILES_PURE = 4
_IMPORT_NAMES = {
    "ImportError": "IM",
    "ModuleNotFoundError": "M",
    "OSError": "O",
    "EnvironmentError": "O",
    "IOError": "O",
}
_ALL_KINDS = "IMO"


def scan(source: bytes, module: str, is_package: bool) -> List[Event]:
    """Events of one module. source: bytes; module: its dotted name. Unreadable syntax gives no events."""
    if len(source) > MAX_BYTES:
        return []
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    scanner = _Scanner(module, is_package, tree)
    with contextlib.suppress(RecursionError):
        scanner.run(tree.body, ())
    return scanner.events[:MAX_EVENTS]


def scan_environment(
    prefix: str, site_packages: List[str], dist_files: Mapping[str, Iterable[str]]
) -> List[Tuple[str, List[Event]]]:
    """[[path, events], ...] of the modules that importing each dist's top-level modules runs first.

    prefix: absolute; site_packages: relative to it. dist_files: {dist: paths relative to the prefix}.
    Follows imports inside the dist: at most MAX_FILES_NATIVE files of one with native files, MAX_FILES_PURE of others.
    """
    results: List[Tuple[str, List[Event]]] = []
    for name in sorted(dist_files):
        paths = set(dist_files[name])
        has_native = any(".so" in path for path in paths)
        left = MAX_FILES_NATIVE if has_native else MAX_FILES_PURE
        queue = sorted(p for p in paths if p.endswith(".py") and _is_top_level(p, site_packages))
        seen = set(queue)
        while queue and left > 0:
            path = queue.pop(0)
            left -= 1
            module, is_package = _module_of(path, site_packages)
            try:
                with open(os.path.join(prefix, path), "rb") as stream:
                    events = scan(stream.read(MAX_BYTES + 1), module, is_package)
            except OSError:
                continue
            results.append((path, events))
            for target in _targets(events):
                for root in site_packages:
                    for tail in (".py", "/__init__.py"):
                        found = root + "/" + target.replace(".", "/") + tail
                        if found in paths and found not in seen:
                            seen.add(found)
                            queue.append(found)
    return results


def library_names(loads: Iterable[Mapping[str, Any]]) -> List[str]:
    """Bare names that ctypes looks up outside of the environment."""
    names = set()
    for module in loads:
        for kind, name, _, _ in module["events"]:
            if kind == "load" and not name.startswith("file:"):
                names.add(name)
    return sorted(names)


def _targets(events: List[Event]) -> Iterator[str]:
    for kind, name, detail, _ in events:
        if kind in ("import", "from"):
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                yield ".".join(parts[:end])
        if kind == "from":
            for item in detail.split(","):
                yield name + "." + item


def _is_top_level(path: str, site_packages: List[str]) -> bool:
    for root in site_packages:
        if path.startswith(root + "/"):
            rest = path[len(root) + 1 :].split("/")
            return len(rest) == 1 or (len(rest) == 2 and rest[1] == "__init__.py")
    return False


def _module_of(path: str, site_packages: List[str]) -> Tuple[str, bool]:
    for root in site_packages:
        if path.startswith(root + "/"):
            parts = path[len(root) + 1 : -len(".py")].split("/")
            if parts[-1] == "__init__":
                return ".".join(parts[:-1]), True
            return ".".join(parts), False
    return "", False


class _Scanner:
    def __init__(self, module: str, is_package: bool, tree: ast.Module) -> None:
        self.package = module if is_package else module.rpartition(".")[0]
        self.events: List[Event] = []
        self.bindings: Dict[str, List[ast.expr]] = {}  # name -> expression nodes it may stand for
        self.functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        self.running: List[str] = []
        self.num_steps = 0
        self.num_tries = 0

    def run(self, body: Sequence[ast.stmt], guards: Guards) -> None:
        for node in body:
            self.num_steps += 1
            if self.num_steps > MAX_STEPS:
                return
            self.statement(node, guards)
            if isinstance(node, ast.If) and _may_return(node) and "if" not in guards:
                guards = (*guards, "if")

    def statement(self, node: ast.stmt, guards: Guards) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.add("import", alias.name, "", guards)
        elif isinstance(node, ast.ImportFrom):
            base = self.absolute(node)
            if base:
                self.add("from", base, ",".join(alias.name for alias in node.names), guards)
        elif isinstance(node, ast.Try):
            self.try_block(node, guards)
        elif isinstance(node, ast.If):
            self.branch(node, guards)
        elif isinstance(node, (ast.With, ast.ClassDef)):
            if isinstance(node, ast.With):
                for item in node.items:
                    self.calls(item.context_expr, guards)
            self.run(node.body, guards)
        elif isinstance(node, ast.For):
            self.bind_target(node.target, node.iter)
            self.calls(node.iter, guards)
            self.run(node.body, guards)
        elif isinstance(node, ast.While):
            self.run(node.body, (*guards, "if"))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if node.value is not None:
                self.calls(node.value, guards)
                for target in targets:
                    if isinstance(target, ast.Name):
                        self.bindings[target.id] = [node.value]
        elif isinstance(node, (ast.Expr, ast.Return)) and node.value is not None:
            self.calls(node.value, guards)

    def try_block(self, node: ast.Try, guards: Guards) -> None:
        self.num_tries += 1
        number = self.num_tries
        kinds = ""
        for handler in node.handlers:
            if not any(isinstance(n, ast.Raise) for n in handler.body):
                kinds += _caught(handler.type)
        kinds = "".join(sorted(set(kinds)))
        self.run(node.body, (*guards, "try:%d:%s" % (number, kinds)))
        for handler in node.handlers:
            self.run(handler.body, (*guards, "except:%d" % number))
        self.run(node.orelse, (*guards, "try:%d:" % number))
        self.run(node.finalbody, guards)

    def branch(self, node: ast.If, guards: Guards) -> None:
        text = ast.dump(node.test)
        if "TYPE_CHECKING" in text:
            self.run(node.orelse, guards)
            return
        self.calls(node.test, guards)
        if isinstance(node.test, ast.Constant):
            self.run(node.body if node.test.value else node.orelse, guards)
            return
        on_linux = _on_linux(node.test)
        if on_linux is not None:
            self.run(node.body if on_linux else node.orelse, guards)
            return
        version = _version_test(node.test)
        self.run(node.body, (*guards, "python:%s:%s" % version if version else "if"))
        self.run(node.orelse, (*guards, "python:!%s:%s" % version if version else "if"))

    def calls(self, expression: ast.expr, guards: Guards) -> None:
        for node in ast.walk(expression):
            if not isinstance(node, ast.Call):
                continue
            name = _dotted(node.func)
            last = name.rpartition(".")[2]
            if last in ("CDLL", "PyDLL", "LoadLibrary", "load_library") and node.args:
                self.library(node, guards)
            elif last == "import_module" and node.args and isinstance(node.args[0], ast.Constant):
                self.import_module(node.args[0].value, guards)
            elif last == "setdlopenflags" and node.args:
                flag = "global" if "RTLD_GLOBAL" in ast.dump(node.args[0]) else "local"
                self.add("flags", "", flag, guards)
            elif name in self.functions and name not in self.running:
                self.running.append(name)
                function = self.functions[name]
                outer = dict(self.bindings)
                for position, argument in enumerate(function.args.args[: len(node.args)]):
                    self.bindings[argument.arg] = [node.args[position]]
                self.run(function.body, guards)
                self.bindings = outer
                self.running.pop()

    def import_module(self, name: object, guards: Guards) -> None:
        if not isinstance(name, str):
            return
        if name.startswith("."):
            level = len(name) - len(name.lstrip("."))
            parts = self.package.split(".")
            base = parts[: len(parts) - level + 1]
            name = ".".join([*base, name.lstrip(".")])
        self.add("import", name, "", guards)

    def library(self, node: ast.Call, guards: Guards) -> None:
        mode = node.args[1] if len(node.args) > 1 else None
        for keyword in node.keywords:
            if keyword.arg == "mode":
                mode = keyword.value
        detail = "global" if mode is not None and "RTLD_GLOBAL" in self.text(mode) else "local"
        for name in self.paths(node.args[0], 0):
            self.add("load", name, detail, guards)

    def text(self, node: ast.expr) -> str:
        found = ast.dump(node)
        if isinstance(node, ast.Name):
            found += "".join(ast.dump(n) for n in self.bindings.get(node.id, []))
        return found

    def paths(self, node: ast.expr, depth: int) -> List[str]:
        """Library names that an expression can stand for."""
        alternatives = self.strings(node, depth)
        is_file = self.mentions_file(node, depth)
        found = []
        for parts in alternatives[:32]:
            text = "/".join(p.strip("/") for p in parts if p.strip("/"))
            if not text or (".so" not in text and "*" not in text):
                continue
            is_path = is_file or "/" in text or "*" in text
            if not is_file and len(parts) == 1 and parts[0].startswith("/"):
                found.append(parts[0])
            else:
                found.append("file:" + text if is_path else text)
        return found

    def strings(self, node: ast.expr, depth: int) -> List[List[str]]:
        """Alternatives, each the list of constant strings of the expression in order."""
        self.num_steps += 1
        if depth > 6 or self.num_steps > MAX_STEPS:
            return [[]]
        if isinstance(node, ast.Constant):
            return [[node.value]] if isinstance(node.value, str) else [[]]
        if isinstance(node, ast.Name):
            values = self.bindings.get(node.id)
            if not values:
                return [[]]
            return [parts for value in values for parts in self.strings(value, depth + 1)]
        if isinstance(node, (ast.Tuple, ast.List)):
            return [parts for item in node.elts for parts in self.strings(item, depth + 1)]
        if isinstance(node, ast.JoinedStr):
            return [["".join(_literal(v) for v in node.values)]]
        children: List[ast.expr] = []
        if isinstance(node, ast.Call):
            function = node.func
            children = ([function.value] if isinstance(function, ast.Attribute) else []) + list(node.args)
        elif isinstance(node, ast.BinOp):
            children = [node.left, node.right]
        elif isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
            children = [node.value]
        results: List[List[str]] = [[]]
        for child in children:
            options = self.strings(child, depth + 1)
            results = [left + right for left in results for right in options][:32]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            results = [["".join(parts)] if parts else [] for parts in results]
        return results

    def mentions_file(self, node: ast.expr, depth: int) -> bool:
        self.num_steps += 1
        if depth > 6 or self.num_steps > MAX_STEPS:
            return False
        for child in ast.walk(node):
            if isinstance(child, ast.Name):
                if child.id in ("__file__", "__path__"):
                    return True
                if any(self.mentions_file(v, depth + 1) for v in self.bindings.get(child.id, [])):
                    return True
        return False

    def bind_target(self, target: ast.expr, iterable: ast.expr) -> None:
        if isinstance(target, ast.Name):
            items = list(iterable.elts) if isinstance(iterable, (ast.Tuple, ast.List)) else [iterable]
            self.bindings[target.id] = items

    def absolute(self, node: ast.ImportFrom) -> Optional[str]:
        if not node.level:
            return node.module
        parts = self.package.split(".") if self.package else []
        if node.level - 1 > len(parts):
            return None
        parts = parts[: len(parts) - node.level + 1]
        return ".".join(parts + ([node.module] if node.module else []))

    def add(self, kind: str, name: str, detail: str, guards: Guards) -> None:
        event = [kind, name, detail, list(guards)]
        if event not in self.events[-16:]:
            self.events.append(event)


def _may_return(node: ast.If) -> bool:
    """Whether a condition may end the function, so that what follows may not run."""
    return _on_linux(node.test) is None and any(
        isinstance(inner, (ast.Return, ast.Continue, ast.Break)) for inner in ast.walk(node)
    )


def _on_linux(test: ast.expr) -> Optional[bool]:
    """Truth of a comparison of sys.platform, os.name or platform.system() with a constant; None for anything else."""
    if isinstance(test, ast.Call) and _dotted(test.func) == "sys.platform.startswith":
        start = test.args[0] if test.args else None
        return "linux".startswith(str(start.value)) if isinstance(start, ast.Constant) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.comparators[0], ast.Constant):
        return None
    left = test.left.func if isinstance(test.left, ast.Call) else test.left
    value = {"sys.platform": "linux", "os.name": "posix", "platform.system": "Linux"}.get(_dotted(left))
    if value is None or not isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
        return None
    return (value == test.comparators[0].value) == isinstance(test.ops[0], ast.Eq)


def _version_test(test: ast.expr) -> Optional[Tuple[str, str]]:
    """(operator, "3.12") of `sys.version_info >= (3, 12)`, else None."""
    operators = {ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<"}
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or _dotted(test.left) != "sys.version_info":
        return None
    bound = test.comparators[0]
    if type(test.ops[0]) not in operators or not isinstance(bound, ast.Tuple):
        return None
    numbers = [str(n.value) for n in bound.elts if isinstance(n, ast.Constant) and isinstance(n.value, int)]
    return (operators[type(test.ops[0])], ".".join(numbers)) if numbers else None


def _caught(node: Optional[ast.expr]) -> str:
    if node is None:
        return _ALL_KINDS
    nodes = node.elts if isinstance(node, ast.Tuple) else [node]
    kinds = ""
    for item in nodes:
        name = _dotted(item).rpartition(".")[2]
        kinds += _ALL_KINDS if name in ("Exception", "BaseException") else _IMPORT_NAMES.get(name, "")
    return kinds


def _dotted(node: ast.expr) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def _literal(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "*"
