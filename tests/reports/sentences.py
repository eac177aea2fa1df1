"""Finds the English texts of the report in the sources: what is said, and what is laid out without blanks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import harness.reports

FOLDER = Path(harness.reports.__file__).parent
_LAID_OUT = {
    "Section": (1, 2),
    "Column": (0,),
    "Table": (0,),
    "Prose": (0,),
    "Bullets": (0, 2),
    "Facts": (1,),
    "Notice": (),
    "Page": (0, 1, 2),
    "Scale": (0,),
    "Measure": (2,),
    "Metric": (1,),
    "say": (0,),
    "_table": (0, 1),
    "_series_table": (0,),
    "folded_table": (0,),
    "_environments": (),
    "_distinct": (1,),
}
"""Callables whose positional arguments of these numbers are texts."""
_TEXT_KEYWORDS = {"title", "lead", "omitted", "hint", "caption", "x_label", "y_label", "headline", "subtitle"}


def texts() -> dict[str, set[str]]:
    """English texts and templates that need a translation, with the files they are in."""
    found: dict[str, set[str]] = {}
    for path in sorted(FOLDER.glob("*.py")):
        for text in _Module(ast.parse(path.read_text())).texts():
            found.setdefault(text, set()).add(path.name)
    for path in sorted((FOLDER / "templates").glob("*.j2")):
        for text in re.findall(r'say\("([^"]*)"\)', path.read_text()):
            found.setdefault(text, set()).add(path.name)
    return {text: places for text, places in found.items() if re.sub(r"{[^}]*}", "", text)}


def blanks(text: str) -> set[str]:
    return set(re.findall(r"{(\w+)[^}]*}", text))


class _Module:
    """A module's calls, and what each name that is passed to them can be."""

    def __init__(self, tree: ast.Module) -> None:
        functions = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
        rest = ast.Module([node for node in tree.body if node not in functions], [])
        self._module = _Names(rest, None)
        self._scopes = [(rest, self._module), *((node, _Names(node, self._module)) for node in functions)]

    def texts(self) -> Iterator[str]:
        for scope, names in self._scopes:
            for node in ast.walk(scope):
                if isinstance(node, ast.Call):
                    for argument in _arguments(node):
                        yield from names.strings(argument)


class _Names:
    """Names of a function, or of a module outside its functions, and what they are bound to."""

    def __init__(self, scope: ast.AST, outer: _Names | None) -> None:
        self._outer = outer
        self._values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._bind(node.target, node.value)
            elif isinstance(node, (ast.For, ast.comprehension)):
                for value in self._parts(node.iter):
                    self._bind(node.target, value)

    def strings(self, value: ast.expr) -> Iterator[str]:
        """What a text argument can be, as far as it is written out."""
        match value:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Name(id=name):
                for known in self._known(name):
                    yield from self.strings(known)
            case ast.IfExp(body=first, orelse=second):
                yield from [*self.strings(first), *self.strings(second)]
            case ast.BoolOp(values=parts):
                for part in parts:
                    yield from self.strings(part)
            case ast.Subscript() | ast.List() | ast.Tuple() | ast.Dict() | ast.Call():
                for part in self._parts(value):
                    yield from self.strings(part)

    def _parts(self, value: ast.expr) -> list[ast.expr]:
        """What a collection holds, of a mapping the values."""
        match value:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return list(parts)
            case ast.Dict(values=parts):
                return list(parts)
            case ast.Subscript(value=inner):
                return [part for row in self._parts(inner) for part in (self._parts(row) or [row])]
            case ast.Name(id=name):
                return [part for known in self._known(name) for part in self._parts(known)]
            case ast.Call(func=ast.Attribute(value=inner, attr="items")):
                return [ast.Tuple([ast.Constant(None), part], ast.Load()) for part in self._parts(inner)]
            case ast.Call(func=ast.Attribute(value=inner, attr="get"), args=arguments):
                return [*self._parts(inner), *arguments[1:]]
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner]):
                return [ast.Tuple([ast.Constant(None), part], ast.Load()) for part in self._parts(inner)]
            case ast.Call(func=ast.Name(id="map" | "list"), args=arguments):
                return self._parts(arguments[-1])
        return []

    def _known(self, name: str) -> list[ast.expr]:
        if name in self._values:
            # a name may be assigned from itself
            found = self._values.pop(name)
            try:
                return [value for value in found if not isinstance(value, ast.Name) or value.id != name]
            finally:
                self._values[name] = found
        return self._outer._known(name) if self._outer else []

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._values.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for part, own in zip(target.elts, value.elts, strict=False):
                self._bind(part, own)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Subscript):
            for row in self._parts(value.value):
                self._bind(target, row)


def _arguments(call: ast.Call) -> Iterator[ast.expr]:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    for place in _LAID_OUT.get(name, ()):
        if place < len(call.args):
            yield call.args[place]
    if name == "map" and isinstance(call.args[0], ast.Name) and call.args[0].id == "say":
        yield call.args[1]
    for keyword in call.keywords:
        if keyword.arg in _TEXT_KEYWORDS and name not in ("say", "text", "replace"):
            yield keyword.value
