"""What a program prints is shown once and in order, whatever messages are lost."""

from __future__ import annotations

import pytest

from gpufleet._program_output import ProgramTranscript

RUN = (1, 0)


def transcript(*pieces: tuple[int, str]) -> ProgramTranscript:
    """A transcript of pieces, each of which is one of a message of its own."""
    result = ProgramTranscript()
    for offset, text in pieces:
        result.add(RUN, offset, text, is_next=False)
    return result


def test_whole_lines_are_shown_once() -> None:
    shown = transcript((0, "epoch 1\nepo"))
    assert shown.unseen() == "epoch 1\n" and shown.unseen() == ""
    shown.add(RUN, 11, "ch 2\n", is_next=True)
    assert shown.unseen() == "epoch 2\n"
    assert shown.rest("epoch 1\nepoch 2\nepoch 3\n") == "epoch 3\n" and shown.rest("epoch 1\n") == ""


def test_a_long_output_goes_on_where_the_messages_end() -> None:
    shown = transcript((0, "a" * 90 + "\n"), (91, "b\n"))
    assert shown.unseen().endswith("b\n")
    assert shown.rest("aaa\nb\nc\n", before=87) == "c\n"


@pytest.mark.parametrize(
    ("whole", "before", "rest"),
    [("6789", 5, "6789"), ("\n6789", 4, "6789"), ("89", 8, "\n… 3 bytes were not received; {}\n89")],
)
def test_lost_messages_are_told(whole: str, before: int, rest: str) -> None:
    told = rest.replace("{}", "the log of the result has them …")
    shown = transcript((0, "0123\n"))
    assert shown.unseen() == "0123\n" and shown.rest(whole, before) == told
    gap = transcript((0, "0\n"), (5, "5\n"))
    assert gap.unseen() == "0\n\n… 3 bytes were not received; the log of the result has them …\n5\n"


def test_replaced_characters_do_not_move_the_rest() -> None:
    shown = transcript((0, "\ufffd ends here\n"))
    # The character stands for three bytes.
    shown.add(RUN, 14, "and on\n", is_next=True)
    assert shown.unseen() == "\ufffd ends here\nand on\n"
    assert shown.rest("\ufffd ends here\nand on\nrest") == "rest"


def test_another_attempt_begins_anew() -> None:
    shown = transcript((0, "first\n"))
    shown.add((2, 0), 0, "second\n", is_next=False)
    assert shown.unseen() == "second\n" and shown.rest("second\nend") == "end"


def test_nothing_is_lost_if_nothing_was_received() -> None:
    assert ProgramTranscript().rest("all\n") == "all\n" and ProgramTranscript().rest("") == ""
