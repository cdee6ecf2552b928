"""What one watched POST says about the clauses. Pure: notes in, findings out."""

from typing import Final

from gateway.domain.evidence import BadResponse, NotSent, Rejected, RunErrored, StreamBroken
from gateway.probe.clauses import Clause
from gateway.probe.findings import Ledger
from gateway.probe.watched import Watched
from gateway.probe.words import in_words, of_post, of_stream
from gateway.sse_parser.parser import StreamParser
from gateway.upstream.response_decoder import BodyEnd

_OF_THE_PARSER: Final = (
    Clause.FRAMES,
    Clause.ORDER,
    Clause.RUN_IDS,
    Clause.ITEM_IDS,
    Clause.CHUNKS,
    Clause.BOUNDS,
    Clause.NATIVE_DIFFERS,
    Clause.TERMINAL,
)
"""What the parser has vouched for when it came to a terminal event."""
_BODY_ENDS: Final = {
    None: "the body was still open",
    BodyEnd.CUT: "the connection was cut before the body's own end",
    BodyEnd.MALFORMED: "the framing of the body was broken",
}


def judge_run(ledger: Ledger, seen: Watched) -> None:
    """The findings of a message that had to run."""
    fact = seen.fact
    if not judge_head(ledger, seen) or isinstance(fact, NotSent | Rejected | BadResponse):
        return
    clause, told = of_stream(fact)
    if isinstance(fact, StreamBroken):
        assert clause is not None, "a stream that broke broke a clause"
        ledger.broken(clause, told if seen.broke_at is None else f"{told} ({seen.broke_at})")
        return
    for kept in _OF_THE_PARSER:
        ledger.ok(kept)
    if seen.executed:
        _judge_native(ledger, seen)
    if clause is None:
        ledger.ok(Clause.SUCCESS)
    else:
        ledger.broken(clause, told)
    _judge_manners(ledger, seen)


def judge_head(ledger: Ledger, seen: Watched) -> bool:
    """The findings of a response that had to be an event stream; True when it is one."""
    fact = seen.fact
    if isinstance(fact, NotSent | Rejected | BadResponse):
        ledger.broken(*of_post(fact, seen.status))
        return False
    ledger.ok(Clause.MESSAGE_TAKEN)
    ledger.ok(Clause.EVENT_STREAM)
    if seen.token_seen:
        ledger.broken(Clause.TOKEN_HIDDEN, "the token of --token-file stands in the stream")
    return True


def judge_refusal(ledger: Ledger, clause: Clause, seen: Watched, *, statuses: frozenset[int]) -> None:
    """The finding of a message that had to be refused: with one of `statuses`, or at least so that the gateway knows that nothing ran."""
    fact = seen.fact
    if seen.executed:
        ledger.broken(clause, "status 200 and an event stream, as if it ran")
    elif isinstance(fact, RunErrored):
        ledger.advise(clause, "status 200 and RUN_ERROR at once: the gateway takes it for a run that failed")
    elif isinstance(fact, Rejected) and fact.status in statuses:
        ledger.ok(clause)
    elif isinstance(fact, Rejected) and not fact.thread_busy:
        if 300 <= fact.status < 400:
            ledger.broken(Clause.NO_REDIRECT, f"the message: status {fact.status}")
        else:
            ledger.advise(clause, f"status {fact.status}: a refusal too")
    elif isinstance(fact, Rejected):
        ledger.broken(clause, f"status {fact.status}, which says that the thread is busy")
    else:
        ledger.broken(clause, in_words(fact, seen.status))


def _judge_native(ledger: Ledger, seen: Watched) -> None:
    if seen.native_run_id is None:
        ledger.broken(Clause.NATIVE_RUN, "no native_run in the whole stream")
        return
    ledger.ok(Clause.NATIVE_RUN)
    if seen.native_late:
        ledger.broken(Clause.NATIVE_SOON, "native_run after something visible")
    else:
        ledger.ok(Clause.NATIVE_SOON)


def _judge_manners(ledger: Ledger, seen: Watched) -> None:
    assert isinstance(seen.parser, StreamParser), "of the bridge profile"
    counts = seen.parser.counts
    untidy = [
        f"{number} {what}"
        for number, what in (
            (counts.closed_open, "left open at RUN_FINISHED"),
            (counts.stray, "about nothing known, or a second time"),
            (counts.after_terminal, "after the terminal event"),
        )
        if number
    ]
    _advice(ledger, Clause.TIDY, f"events or items: {', '.join(untidy)}" if untidy else None)
    _advice(ledger, Clause.TEXT, None if counts.text_bytes else "no text of the assistant")
    _advice(ledger, Clause.RAW_OFF, f"{counts.ignored_raw} of {counts.frames} events are RAW" if counts.ignored_raw else None)
    _advice(ledger, Clause.BODY_END, _BODY_ENDS.get(seen.body_end))


def _advice(ledger: Ledger, clause: Clause, seen: str | None) -> None:
    if seen is None:
        ledger.ok(clause)
    else:
        ledger.broken(clause, seen)
