"""Options that classes declare: their arguments or fields, with defaults and docstrings.

The class is the only declaration of an option. Configuration files name classes and contain the
values that differ from the defaults; everything else is read from the class. Classes of Stringline
are read as source text and not imported: the sources of a training take 0.15 s, its imports 3 s.
Classes of other packages are imported, because the user has named them.

An argument is an option if its default is plain (numbers, words, lists, mappings, None, or a
dataclass of these) and its description is in `Args:` or `Attributes:`. Arguments that other code
gives, and those for Python programs only, are described in `Other Args:`.
"""

import ast
import inspect
import operator
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import stringline

PACKAGE = "stringline"
REQUIRED = object()
"""The default of an argument without default."""
PART = object()
"""The default of an argument whose value is no plain value, such as another class."""


@dataclass(frozen=True)
class Argument:
    """An argument of a class.

    Attributes:
        default: A plain value, `REQUIRED` or `PART`.
        description: Its description in the docstring, in one line; empty if there is none.
        internal: Whether it is described in `Other Args:`, so that it is no option.
        arguments: Those of the dataclass that is the default, if it is one.
    """

    default: object
    description: str = ""
    internal: bool = False
    arguments: Mapping[str, "Argument"] = field(default_factory=dict)

    @property
    def is_option(self) -> bool:
        """Whether configurations contain the argument."""
        return not self.internal and self.default is not PART


def options(arguments: Mapping[str, Argument], *, partial: bool = False) -> dict[str, Any]:
    """Returns the plain defaults of options, `???` for options without default.

    Args:
        arguments: The arguments of a class.
        partial: Whether other code completes the call; it gives the arguments without default.
    """
    return {
        name: _plain_default(argument)
        for name, argument in arguments.items()
        if argument.is_option and not (partial and argument.default is REQUIRED)
    }


def _plain_default(argument: Argument) -> Any:
    if argument.arguments:
        return options(argument.arguments)
    return "???" if argument.default is REQUIRED else argument.default


@cache
def declared(name: str) -> Mapping[str, Argument]:
    """Returns the arguments of a class or function of Stringline; imports nothing.

    Args:
        name: A public name, `stringline.Rope`, or `stringline.<module>:<Class>`.

    Raises:
        ValueError: There is no such class.
    """
    found = _definition(name)
    if found is None:
        raise ValueError(f"{name!r} is not the name of a class of Stringline.")
    return _arguments(*found)


def _definition(name: str) -> "tuple[_Module, _Definition] | None":
    module, colon, own = name.partition(":")
    if not colon:
        module, _, own = name.rpartition(".")
        module = stringline.HOME.get(own, "") if module == PACKAGE else module
    found = _module(module).find(own) if module.startswith(f"{PACKAGE}.") else None
    if found is None or not isinstance(found[1], _DEFINITIONS):
        return None
    return found[0], found[1]


def imported(owner: type) -> dict[str, Argument]:
    """Returns the arguments of an imported class, or of the settings that are its argument."""
    settings = inspect.signature(owner).parameters.get("settings")
    found: Any = owner if settings is None else settings.annotation
    if isinstance(found, str):
        found = vars(sys.modules[owner.__module__]).get(found, owner)
    texts = [
        text
        for each in reversed(inspect.getmro(found))
        if each is not object
        for text in (each.__doc__, getattr(vars(each).get("__init__"), "__doc__", None))
    ]
    described, internal = _descriptions(texts)
    return {
        name: Argument(_runtime(each.default), described.get(name, ""), name in internal)
        for name, each in inspect.signature(found).parameters.items()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }


def _runtime(default: object) -> object:
    if default is inspect.Parameter.empty:
        return REQUIRED
    if isinstance(default, (list, tuple)):
        entries = [_runtime(entry) for entry in default]
        return PART if PART in entries else entries
    return default if isinstance(default, (bool, int, float, str)) else PART


# The docstrings.

_SECTION = re.compile(r"(Args|Attributes|Other Args):$")
_HEADING = re.compile(r"[A-Z][A-Za-z ]*:$")
_AS_YAML = {"None": "null", "True": "true", "False": "false"}
_CONSTANT = re.compile(rf"\b({'|'.join(_AS_YAML)})\b")
_ENTRY = re.compile(r"(?:    |\t)\*{0,2}(\w+)(?: \([^)]*\))?: ?(.*)$")


def _descriptions(texts: Sequence[str | None]) -> tuple[dict[str, str], set[str]]:
    """Returns the descriptions in docstrings, of which later ones count, and internal arguments."""
    described: dict[str, str] = {}
    internal: set[str] = set()
    for text in texts:
        for section, name, description in _entries(inspect.cleandoc(text or "")):
            described[name] = _CONSTANT.sub(lambda word: _AS_YAML[word[0]], description)
            (internal.add if section == "Other Args" else internal.discard)(name)
    return described, internal


def _entries(text: str) -> Iterator[tuple[str, str, str]]:
    """Yields section, name and description of each argument in a docstring."""
    section = ""
    name = ""
    words = list[str]()
    for line in [*text.splitlines(), "End:"]:
        entry = _ENTRY.match(line) if section else None
        if (entry or _HEADING.match(line)) and name:
            yield section, name, " ".join(words)
            name = ""
            words = []
        if entry:
            name = entry[1]
            words = [entry[2].strip()]
        elif heading := _HEADING.match(line):
            found = _SECTION.match(line)
            section = found[1] if found and heading else ""
        elif name and line.strip():
            words.append(line.strip())


# The sources.

_Definition = ast.ClassDef | ast.FunctionDef
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef)
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


class _NotPlainError(Exception):
    """An expression has no plain value."""


@dataclass(frozen=True)
class _Module:
    """The top level of a source file: definitions, assigned values, and imported names."""

    name: str
    own: Mapping[str, ast.stmt | ast.expr]
    imported: Mapping[str, tuple[str, str]]

    def find(self, name: str) -> "tuple[_Module, ast.stmt | ast.expr] | None":
        """Returns what a name of Stringline stands for, and the module that defines it."""
        if name in self.own:
            return self, self.own[name]
        module, original = self.imported.get(name, ("", ""))
        if module == PACKAGE:
            module = stringline.HOME.get(original, "")
        return _module(module).find(original) if module.startswith(f"{PACKAGE}.") else None


@cache
def _module(name: str) -> _Module:
    file = Path(stringline.__file__).parent.joinpath(*name.split(".")[1:]).with_suffix(".py")
    own: dict[str, ast.stmt | ast.expr] = {}
    names: dict[str, tuple[str, str]] = {}
    for each in ast.parse(file.read_bytes()).body if file.is_file() else ():
        if isinstance(each, ast.ImportFrom):
            names |= {one.asname or one.name: (each.module or "", one.name) for one in each.names}
        elif isinstance(each, _DEFINITIONS):
            own[each.name] = each
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            own[each.targets[0].id] = each.value
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value:
            own[each.target.id] = each.value
    return _Module(name, own, names)


@dataclass(frozen=True)
class _Parameter:
    """An argument in the source: the module that contains it, its annotation and default."""

    module: _Module
    annotation: ast.expr | None
    default: ast.expr | None

    def value(self) -> object:
        """Returns the plain default, `REQUIRED` or `PART`."""
        if self._is_part():
            return PART
        if self.default is None:
            return REQUIRED
        try:
            return _value(self.module, self.default)
        except _NotPlainError:
            return PART

    def _is_part(self) -> bool:
        """Returns whether only a class or function fits the annotation, None aside."""
        if self.default is not None and not _is_none(self.default):
            return False
        return self.annotation is not None and _is_class(self.module, self.annotation)

    def settings(self) -> "tuple[_Module, ast.ClassDef] | None":
        """Returns the dataclass whose instance without arguments is the default, if it is one."""
        call = self.default
        if not isinstance(call, ast.Call):
            return None
        made = _keyword(call, "default_factory") if _is_field(call) else call.func
        found = self.module.find(made.id) if isinstance(made, ast.Name) else None
        if found is None or not isinstance(found[1], ast.ClassDef) or not _is_dataclass(found[1]):
            return None
        return found[0], found[1]


def _is_class(module: _Module, annotation: ast.expr) -> bool:
    """Returns whether an annotation, None aside, stands for classes of Stringline or functions."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        sides = [each for each in (annotation.left, annotation.right) if not _is_none(each)]
        return all(_is_class(module, each) for each in sides)
    named = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    if not isinstance(named, ast.Name):
        return False
    owner = module.find(named.id)
    if owner and isinstance(owner[1], ast.expr):
        return _is_class(owner[0], owner[1])
    return named.id in ("Callable", "type") or isinstance(owner and owner[1], ast.ClassDef)


def _value(module: _Module, node: ast.expr | ast.stmt) -> Any:
    """Returns the plain value of an expression; tuples become lists."""
    match node:
        case ast.Constant():
            value: Any = node.value
        case ast.Tuple() | ast.List():
            value = [_value(module, each) for each in node.elts]
        case ast.Dict():
            pairs = zip(node.keys, node.values, strict=True)
            value = {_value(module, key): _value(module, each) for key, each in pairs if key}
        case ast.UnaryOp(op=ast.USub()):
            value = -_value(module, node.operand)
        case ast.BinOp() if type(node.op) in _OPERATORS:
            numbers = (_value(module, side) for side in (node.left, node.right))
            value = _OPERATORS[type(node.op)](*numbers)
        case ast.Name() if found := module.find(node.id):
            value = _value(*found)
        case ast.Call() if _is_field(node):
            value = _field_value(module, node)
        case ast.Call(func=ast.Name(id="Path"), args=[ast.Constant(value=str() as path)]):
            value = path
        case _:
            raise _NotPlainError
    return value


def _field_value(module: _Module, call: ast.Call) -> Any:
    made = _keyword(call, "default_factory")
    if isinstance(made, ast.Name) and made.id in ("dict", "list", "tuple"):
        return {} if made.id == "dict" else []
    if (default := _keyword(call, "default")) is None:
        raise _NotPlainError
    return _value(module, default)


def _arguments(module: _Module, found: _Definition) -> dict[str, Argument]:
    """Returns the arguments of a class or function, or of the settings that are its argument."""
    parameters = _parameters(module, found)
    if "settings" in parameters:
        given = parameters["settings"]
        for name in _names(given.annotation):
            owner = given.module.find(name)
            if owner is not None and isinstance(owner[1], ast.ClassDef):
                return _arguments(owner[0], owner[1])
    described, internal = _descriptions(list(_docstrings(module, found)))
    arguments = {}
    for name, each in parameters.items():
        nested = each.settings()
        below = {} if nested is None else _arguments(*nested)
        default = {} if below else each.value()
        arguments[name] = Argument(default, described.get(name, ""), name in internal, below)
    return arguments


def _parameters(module: _Module, found: _Definition) -> dict[str, _Parameter]:
    if isinstance(found, ast.FunctionDef):
        return _signature(module, found)
    init = next((each for each in found.body if _is_function(each, "__init__")), None)
    if isinstance(init, ast.FunctionDef):
        signature = _signature(module, init)
        return {name: signature[name] for name in list(signature)[1:]}
    inherited: dict[str, _Parameter] = {}
    for base in _bases(module, found):
        inherited |= _parameters(*base)
    return {**inherited, **_fields(module, found)} if _is_dataclass(found) else inherited


def _signature(module: _Module, function: ast.FunctionDef) -> dict[str, _Parameter]:
    given = function.args
    named = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [
        *[None] * (len(named) - len(given.defaults)),
        *given.defaults,
    ]
    pairs = chain(
        zip(named, defaults, strict=True), zip(given.kwonlyargs, given.kw_defaults, strict=True)
    )
    return {each.arg: _Parameter(module, each.annotation, default) for each, default in pairs}


def _fields(module: _Module, found: ast.ClassDef) -> dict[str, _Parameter]:
    """Returns the own fields of a dataclass that are arguments."""
    return {
        each.target.id: _Parameter(module, each.annotation, _field_default(each.value))
        for each in found.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and "ClassVar" not in _names(each.annotation)
        and not (isinstance(init := _keyword(each.value, "init"), ast.Constant) and not init.value)
    }


def _field_default(value: ast.expr | None) -> ast.expr | None:
    """Returns the default of a field; None for `field()` without one."""
    if isinstance(value, ast.Call) and _is_field(value):
        given = {each.arg for each in value.keywords}
        return value if given & {"default", "default_factory"} else None
    return value


def _docstrings(module: _Module, found: _Definition) -> Iterator[str | None]:
    """Yields the docstrings of bases, class and constructor, in the order of their priority."""
    if isinstance(found, ast.ClassDef):
        for base in _bases(module, found):
            yield from _docstrings(*base)
        yield ast.get_docstring(found)
        yield from (
            ast.get_docstring(each)
            for each in found.body
            if isinstance(each, ast.FunctionDef) and each.name == "__init__"
        )
    else:
        yield ast.get_docstring(found)


def _bases(module: _Module, found: ast.ClassDef) -> Iterator[tuple[_Module, ast.ClassDef]]:
    """Yields the classes of Stringline that a class derives from, the first one last."""
    for base in reversed(found.bases):
        name = base.value if isinstance(base, ast.Subscript) else base
        owner = module.find(name.id) if isinstance(name, ast.Name) else None
        if owner is not None and isinstance(owner[1], ast.ClassDef):
            yield owner[0], owner[1]


def _names(annotation: ast.expr | None) -> list[str]:
    """Returns the names in an annotation, also in one in quotation marks."""
    if annotation is None:
        return []
    names = []
    for each in ast.walk(annotation):
        if isinstance(each, ast.Name):
            names.append(each.id)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            names += re.findall(r"\w+", each.value)
    return names


def _is_function(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _is_dataclass(found: ast.ClassDef) -> bool:
    calls = (each.func if isinstance(each, ast.Call) else each for each in found.decorator_list)
    return any(isinstance(each, ast.Name) and each.id == "dataclass" for each in calls)


def _is_field(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "field"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _keyword(call: ast.expr | None, name: str) -> ast.expr | None:
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return next((each.value for each in keywords if each.arg == name), None)
