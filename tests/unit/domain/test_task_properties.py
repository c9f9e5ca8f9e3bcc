"""No sequence of commands and reports, stale and duplicate ones included, breaks a task."""

from collections import Counter
from datetime import datetime, timedelta

from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.domain.failures import Failure
from perdure.domain.task import TERMINAL, from_json, to_json
from perdure.domain.task_decisions import Assign, Lose, Receive, RequestCancel
from perdure.domain.task_evolution import replay
from perdure.errors import Conflict
from tests.builders.tasks import INCARNATION, NOW, WORKER_ID, History, checkpoint, report, succeeded

BODIES = st.one_of(
    st.builds(events_pb2.AttemptStarted, pid=st.integers(1, 9)),
    st.builds(events_pb2.EpochCompleted, epoch=st.integers(1, 3)),
    st.integers(1, 6).map(checkpoint),
    st.sampled_from(list(Failure)).map(lambda f: events_pb2.AttemptFailed(failure=f)),
    st.sampled_from(["prepare", "train", "publish"]).map(succeeded),
)
# Most reports are those of the attempt that runs, or nothing would ever get far.
FENCE_BACK = st.sampled_from([0, 0, 0, 0, 0, 1, 2, -1])
ACTIONS = st.one_of(
    st.tuples(st.just("assign")),
    st.tuples(st.just("report"), FENCE_BACK, BODIES),
    st.tuples(st.just("gap"), st.integers(-2, 3), BODIES),
    st.tuples(st.just("success"), FENCE_BACK),
    st.tuples(st.just("zombie"), BODIES),
    st.tuples(st.just("again"), st.integers(0, 30)),
    st.tuples(st.just("lose"), FENCE_BACK),
    st.tuples(st.just("wait"), st.sampled_from([1, 400, 2000])),
    st.tuples(st.sampled_from(["cancel"] + ["assign"] * 9)),
)


class Play:
    """Plays actions on a task, and remembers each report, so that it can come again."""

    def __init__(self, goal: str) -> None:
        self.history = History(goal)
        self.sent: list[work_pb2.Report] = []
        self.now = NOW

    def act(self, action: tuple) -> list[str]:
        state = self.history.state
        match action:
            case ("assign",):
                return self.history.do(Assign(WORKER_ID, INCARNATION, self.now))
            case ("report", back, body):
                return self.receive(self.next_report(max(0, state.fence - back), body))
            case ("gap", off, body):
                message = self.next_report(state.fence, body)
                message.seq = max(1, message.seq + off)
                return self.receive(message)
            case ("success", back):
                fence = max(0, state.fence - back)
                return self.receive(self.next_report(fence, succeeded(state.stage)))
            case ("zombie", body):
                return self.receive(report(state.fence, body, incarnation="older"))
            case ("again", index) if self.sent:
                return self.receive(self.sent[index % len(self.sent)])
            case ("lose", back):
                fence = max(0, state.fence - back)
                return self.history.do(Lose(fence, Failure.LOST_WORKER, "gone", self.now, 31.0))
            case ("wait", seconds):
                later = datetime.fromisoformat(self.now) + timedelta(seconds=seconds)
                self.now = later.isoformat()
            case ("cancel",):
                return self.history.do(RequestCancel("someone"))
        return []

    def next_report(self, fence: int, body: Message) -> work_pb2.Report:
        attempt = self.history.state.attempt(fence)
        return report(fence, body, seq=attempt.reports + 1 if attempt else 1)

    def receive(self, message: work_pb2.Report) -> list[str]:
        self.sent.append(message)
        return self.history.do(Receive(message, self.now), cause=message.id)


@settings(max_examples=400, deadline=None)
@given(goal=st.sampled_from(["model", "dataset"]), actions=st.lists(ACTIONS, max_size=60))
def test_no_sequence_breaks_a_task(goal: str, actions: list[tuple]) -> None:
    play = Play(goal)
    for action in actions:
        before = play.history.state
        try:
            names = play.act(action)
        except Conflict:
            names = []
        after = play.history.state
        if before.status in TERMINAL:
            assert after.status is before.status
            assert set(names) <= {"StaleReportRecorded"}
        assert after.fence >= before.fence

    events = play.history.events
    names = Counter(event.type for event in events)
    assert names["TaskSucceeded"] + names["TaskFailed"] + names["TaskCancelled"] <= 1
    accepted = Counter(
        event.data.WhichOneof("result") for event in events if event.type == "AttemptSucceeded"
    )
    assert all(n == 1 for n in accepted.values())
    fences = [event.data.fence for event in events if event.type == "AttemptAssigned"]
    assert fences == list(range(1, len(fences) + 1))
    ended_fences = Counter(
        event.data.fence for event in events if event.type in ("AttemptFailed", "AttemptSucceeded")
    )
    assert all(n == 1 for n in ended_fences.values())
    assert replay(events) == play.history.state
    assert from_json(to_json(play.history.state)) == play.history.state


@settings(max_examples=200, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=60))
def test_the_same_report_twice_in_a_row_changes_nothing_the_second_time(
    actions: list[tuple],
) -> None:
    play = Play("model")
    for action in actions:
        try:
            play.act(action)
        except Conflict:
            continue
        if action[0] in ("report", "gap", "success", "zombie") and play.sent:
            assert play.receive(play.sent[-1]) == []
