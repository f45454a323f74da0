"""A report shows what lies in the folders it is given, and nothing that they point to or pretend to be."""

import base64
import json
import os

import pytest

from sombrl.report.loading import find
from sombrl.report.media import embed
from sombrl.report.page import write_report
from tests.report.examples import GIF, write_run, write_table

SECRET = b"the key to the house"


def secret(tmp_path, text=SECRET):
    path = tmp_path / "home" / "secret"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text)
    return path


def is_in(page):
    text = page.read_text()
    return SECRET.decode() in text or base64.b64encode(SECRET).decode() in text


@pytest.mark.parametrize("name", ["film.png", "film.gif", "videos/film.mp4", "plots/x.png"])
def test_a_link_with_the_name_of_a_picture_is_not_followed(tmp_path, name):
    run = write_run(tmp_path / "run", films=True)
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(secret(tmp_path))
    page = write_report([run], tmp_path / "r.html")
    assert not is_in(page) and "a link, which is not followed" in page.read_text()
    assert base64.b64encode(GIF).decode() in page.read_text()  # its own film is there


def test_folders_that_are_links_are_not_followed(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "photo.gif").write_bytes(GIF)
    run = write_run(tmp_path / "run")
    (run / "plots").symlink_to(tmp_path / "home")
    (source,) = find([run]).sources
    assert source.media == ()


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "metrics.jsonl", "eval.json"])
def test_a_run_whose_files_are_links_is_left_out(tmp_path, name):
    whole, run = write_run(tmp_path / "runs" / "whole"), write_run(tmp_path / "runs" / "linked")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(secret(tmp_path, json.dumps({"auth": SECRET.decode()}).encode()))
    page = write_report([tmp_path / "runs"], tmp_path / "r.html")
    assert not is_in(page) and f"{name} is a link" in page.read_text()
    assert [source.path for source in find([tmp_path / "runs"]).sources] == [whole]


def test_tables_and_manifests_beside_them_too(tmp_path):
    table = write_table(tmp_path / "results" / "toy.csv")
    os.rename(table, tmp_path / "elsewhere.csv")
    table.symlink_to(tmp_path / "elsewhere.csv")
    found = find([tmp_path / "results"])
    assert found.sources == [] and found.skipped[0][1].startswith("is a link")
    assert len(find([table]).sources) == 1  # what the user names himself may be one

    beside = table.with_suffix(".json")
    beside.unlink()
    beside.symlink_to(secret(tmp_path, json.dumps({"auth": SECRET.decode()}).encode()))
    assert find([table]).sources[0].manifest is None


@pytest.mark.parametrize("content", [SECRET, b"", b"GIF8", b"\x89PNG", b"....ftyp", b"<svg onload='x()'>"])
def test_what_only_has_the_name_of_a_picture_is_not_shown(tmp_path, content):
    paths = [tmp_path / "a.gif", tmp_path / "b.png"]
    for path in paths:
        path.write_bytes(content)
    assert [(medium.data, medium.reason) for medium in embed(paths)] == [
        (None, "not a gif file"),
        (None, "not a png file"),
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.gif", GIF), ("a.PNG", b"\x89PNG\r\n\x1a\n...."), ("a.mp4", b"\0\0\0\x20ftypisom")],
)
def test_what_is_one_is(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    (medium,) = embed([tmp_path / name])
    assert medium.data is not None and base64.b64decode(medium.data.partition(",")[2]) == content


@pytest.mark.parametrize("where", ["config.json", "eval.json", "metrics.jsonl", "manifest.json"])
def test_half_a_character_breaks_one_run_and_not_the_page(tmp_path, where):
    """ "\\ud800" is JSON, but no text that could be written."""
    write_run(tmp_path / "runs" / "whole")
    run = write_run(tmp_path / "runs" / "half")
    half = "lone\ud800surrogate"
    if where == "config.json":
        content = json.loads((run / where).read_text())
        content["run"]["env"] = half
    elif where == "metrics.jsonl":
        content = {"iteration": 10, "seed": 0, f"rollout/{half}": 1.0}
    else:
        content = [{"settings": {"planner": half}, "returns": {}}] if where == "eval.json" else {"note": half}
    with open(run / where, "a" if where == "metrics.jsonl" else "w") as file:
        file.write(json.dumps(content) + "\n")
    found = find([tmp_path / "runs"])
    assert [source.path.name for source in found.sources] == ["whole"]
    assert [path.name for path, _ in found.skipped] == ["half"]
    assert write_report([tmp_path / "runs"], tmp_path / "r.html").stat().st_size > 1000


def test_a_folder_whose_name_is_not_text_is_reported(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    write_run(tmp_path / name)
    page = write_report([tmp_path], tmp_path / "r.html")
    assert "caf\\udce9" in page.read_text()
