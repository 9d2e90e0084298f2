"""The size check finds what is too long, honours its exceptions, and complains of those that nothing needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_sizes


def written(folder: Path, text: str) -> str:
    (folder / "module.py").write_text(text)
    return folder.as_posix()


def function(lines: int, parameters: str = "") -> str:
    return f"def made({parameters}):\n" + "    pass\n" * (lines - 1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (function(60), None),
        (function(61), "made has 61 function_lines"),
        ("x = 1\n" * 600, None),
        ("x = 1\n" * 601, "file has 601 file_lines"),
        (function(2, "a, b, c, *, d, e"), None),
        (function(2, "a, b, c, *args, d, e, f, **more"), "made has 6 parameters"),
        ("class A:\n    def made(self, a, b, c, d, e): ...\n", None),
        ("class A:\n    def made(self, a, b, c, d, e, f): ...\n", "A.made has 6 parameters"),
        ("class A:\n    @staticmethod\n    def made(a, b, c, d, e, f): ...\n", "A.made has 6 parameters"),
        ("def outer():\n    async def inner(a, b, c, d, e, f): ...\n", "outer.inner has 6 parameters"),
    ],
)
def test_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, complaint: str | None) -> None:
    code = check_sizes.main([written(tmp_path, text)])
    assert code == (complaint is not None)
    assert (complaint or "0 complaints") in capsys.readouterr().out


def test_an_exception_raises_one_limit(tmp_path: Path) -> None:
    folder = written(tmp_path, function(70, "a, b, c, d, e, f"))
    place = f"{folder}/module.py::made"
    (measure,) = [m for m in check_sizes.measure_file(tmp_path / "module.py") if m.limit == "function_lines"]
    assert check_sizes.judge(measure, {(place, "function_lines"): 70}) is None
    assert check_sizes.judge(measure, {(place, "function_lines"): 69})
    assert check_sizes.judge(measure, {(place, "parameters"): 100})


def test_a_stale_exception_is_a_complaint(tmp_path: Path) -> None:
    folder = written(tmp_path, function(10))
    measures = list(check_sizes.measure_file(tmp_path / "module.py"))
    exceptions = {(f"{folder}/module.py::made", "function_lines"): 70, ("elsewhere/module.py", "file_lines"): 700}
    assert len(check_sizes.stale(exceptions, measures, [folder])) == 1
