"""Instructions from templates."""

from benchmarks.instructions import STRUCTURED, WORKLOADS, instructions
from vllm_spec_tools.prompts import GivenPrompt


def test_chats_to_train_on_are_different_and_others_than_those_to_measure_with() -> None:
    train, bench = list(instructions("train", 400)), list(instructions("bench", 12))
    asked = [entry["messages"][0]["content"] for entry in train + bench]
    assert (len(train), len(bench)) == (400, 12 * len(WORKLOADS | STRUCTURED))
    assert len(set(asked)) == len(asked)
    assert list(instructions("train", 400)) == train


def test_prompts_to_measure_with_name_their_workload_and_edits_are_predicted() -> None:
    entries = [GivenPrompt.model_validate(entry) for entry in instructions("bench", 3)]
    assert {entry.workload for entry in entries} == {*WORKLOADS, *STRUCTURED}
    assert {entry.workload for entry in entries if entry.prediction} == {"edit"}
    assert {entry.workload for entry in entries if entry.output_schema} == set(STRUCTURED)
    # Those without a schema come first, in turns.
    assert [entry.workload for entry in entries][: 3 * len(WORKLOADS)] == [*WORKLOADS] * 3
    assert {bool(entry.output_schema) for entry in entries[3 * len(WORKLOADS) :]} == {True}
