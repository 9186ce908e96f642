"""The shape of the packages: public names, the direction of imports, what an import loads."""

import ast
import importlib
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

PACKAGES = ("jwtlimit_core", "jwtlimit_django", "jwtlimit_flask", "jwtlimit_starlette")
# Each module imports only what stands in a row above it, or to its left in its own row.
ROWS = (
    ("clock", "errors", "rate", "decision", "provider", "flow"),
    ("strict_json", "claims", "keys", "bucket", "eviction", "tokens", "http", "client_address", "body", "wsgi"),
    ("limit", "config", "decoration"),
    ("turn", "limiter"),
    ("spend",),
    (
        "redis.wire",
        "redis.connections",
        "redis.clients",
        "redis.store",
        "redis.refusals",
        "redis.store_limiter",
        "redis.limiters",
        "redis",
    ),
    ("processor", "counters", "request", "request_keys", "charger"),
    ("engine", "view_passage"),
    ("settings",),
    ("asgi", "asgi_passage"),
    ("testing",),
)
ORDER = [module for row in ROWS for module in row]


def modules(package: str) -> dict[str, ast.Module]:
    """Return the modules of *package* by their dotted names in it, a package inside it by its own name."""
    root = Path(str(files(package)))
    names = {path: path.relative_to(root).with_suffix("").as_posix().replace("/", ".") for path in root.rglob("*.py")}
    return {name.removesuffix(".__init__"): ast.parse(path.read_text()) for path, name in names.items()}


def imported(tree: ast.Module) -> set[str]:
    """Return the dotted names of all modules that *tree* imports anywhere, for typing included."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction"
            names.add(node.module or "")
    return names


def exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__":
            return list(ast.literal_eval(node.value))
    raise AssertionError("no __all__")


def test_core_modules_import_only_to_the_left_and_above() -> None:
    trees = modules("jwtlimit_core")
    assert sorted(trees) == sorted([*ORDER, "__init__"])
    for name in ORDER:
        ours = {module.partition(".")[2] for module in imported(trees[name]) if module.startswith("jwtlimit")}
        assert ours <= set(ORDER[: ORDER.index(name)]), name


@pytest.mark.parametrize("package", PACKAGES[1:])
def test_adapter_imports_no_other_adapter(package: str) -> None:
    for tree in modules(package).values():
        ours = {module.partition(".")[0] for module in imported(tree) if module.startswith("jwtlimit_")}
        assert ours <= {"jwtlimit_core", package}


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_sorted_and_lists_what_is_public(package: str) -> None:
    for name, tree in modules(package).items():
        assert exported(tree) == sorted(exported(tree), key=lambda item: (not item.isupper(), not item[0].isupper(), item))
        if package == "jwtlimit_flask" and name != "__init__":
            continue  # private to the adapter, and flask may not be installed
        if name == "__init__" and package == "jwtlimit_core":
            module = importlib.import_module(package)
            public = {
                item for item, value in vars(module).items() if not item.startswith("_") and not hasattr(value, "__path__")
            }
            assert {item for item in public if item not in ORDER} == set(exported(tree))


def test_core_import_loads_no_framework() -> None:
    code = "import jwtlimit_core, sys; print(*sorted({'django', 'flask', 'starlette', 'redis', 'asgiref'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("package", PACKAGES)
def test_package_is_typed(package: str) -> None:
    assert (files(package) / "py.typed").is_file()
