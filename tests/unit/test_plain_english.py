"""The check of plain English notices a bad name and a bad sentence, and takes plain ones."""

import pytest

from tests import plain_english

PLAIN = '''"""Sums of ranks: it stops when no rank is left."""


def test_sum_of_two_ranks_is_exact():
    """The sum is reported once; what is a good name for a word inside a sentence."""
'''


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.py", PLAIN, ""),
        ("a.py", PLAIN.replace("test_sum_of_two_ranks_is_exact", "test_nobody_is_faster"), "name"),
        ("a.py", PLAIN.replace("test_sum", f"test_sum{'_of_sums' * 10}"), "name"),
        ("a.py", PLAIN.replace("reported", "told"), "sentence"),
        ("a.py", f'{PLAIN}    option(help="A job of its own.")\n', "sentence"),
        ("a.md", "A page of plain words.\n\n```python\nnobody = 1\n```\n", ""),
        ("a.md", "A page of plain words.\n\n- It stands in a list.\n", "sentence"),
    ],
)
def test_bad_name_and_bad_sentence_are_noticed(tmp_path, name, text, kind):
    (tmp_path / name).write_text(text)
    found = [kind for kind, is_plain, _ in plain_english.words_of(tmp_path / name) if not is_plain]
    assert found == ([kind] if kind else [])


def test_more_bad_names_than_the_limit_fail_the_check(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plain_english, "ROOT", tmp_path)
    monkeypatch.setattr(plain_english, "PLACES", ("code",))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text(PLAIN)
    assert plain_english.main() == 0
    (tmp_path / "code" / "b.py").write_text(PLAIN.replace("test_sum", "test_nobody"))
    assert plain_english.main() == 1
    assert "code/b.py: test_nobody_of_two_ranks_is_exact\n1 of 2 names are not plain" in capsys.readouterr().err
