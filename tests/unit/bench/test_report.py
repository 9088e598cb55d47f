"""The table and the warnings beside it."""

from collections.abc import Callable

import pytest

from treegraft.bench.across import across_text, compare_across
from treegraft.bench.record import BenchRecord, Sample, read_record, write_record
from treegraft.bench.report import figures, report_text
from treegraft.errors import RecordError, UsageError

MakeSample = Callable[..., Sample]
MakeRecord = Callable[..., BenchRecord]


def two_arms(make: MakeSample, num_units: int = 12) -> list[Sample]:
    return [
        sample
        for i in range(num_units)
        for sample in (
            make("ar", f"u{i}", 2.0, accept_lengths=(1,) * 9),
            make("ddtree 16", f"u{i}", 1.0, accept_lengths=(4, 2, 3)),
        )
    ]


def test_figures_of_each_arm(make_sample: MakeSample, make_record: MakeRecord) -> None:
    result = figures(make_record(two_arms(make_sample)).report)
    ar, tree = result.arms
    assert (ar.tokens_per_second, tree.tokens_per_second) == (pytest.approx(5.0), pytest.approx(10.0))
    assert (ar.tau, tree.tau) == (1.0, 3.0)
    assert tree.ms_per_pass == pytest.approx(1000 * 0.9 / 3)
    assert tree.tau_by_category == {"math": 3.0}
    assert ar.comparison is None
    assert tree.comparison is not None
    assert tree.comparison.ratio == pytest.approx(2.0)


def test_loops_count_in_no_average(make_sample: MakeSample, make_record: MakeRecord) -> None:
    samples = [
        *two_arms(make_sample),
        make_sample("ar", "x", 1.0, accept_lengths=(1,) * 9),
        make_sample("ddtree 16", "x", 0.001, accept_lengths=(16,) * 9, is_loop=True),
    ]
    result = figures(make_record(samples).report)
    assert (result.num_units, result.num_loops) == (13, 1)
    assert result.arms[1].tau == 3.0
    assert "1 of them left out" in report_text(make_record(samples))


def test_text_says_underpowered_noise_and_texts(make_sample: MakeSample, make_record: MakeRecord) -> None:
    text = report_text(make_record(two_arms(make_sample, 3)))
    assert "ddtree 16: underpowered, 3 units" in text
    assert "noise unknown" in text
    assert "every text equals ar's" in text
    different = [*two_arms(make_sample), make_sample("ar", "x", 1.0), make_sample("ddtree 16", "x", 1.0, text="other")]
    assert "1 texts differ from ar's: x" in report_text(make_record(different))


@pytest.mark.parametrize(("lengths", "words"), [((1, 1, 1), "no draft token"), ((16, 16, 16), "exactly 16")])
def test_too_good_and_too_bad_are_suspicious(
    make_sample: MakeSample, make_record: MakeRecord, lengths: tuple[int, ...], words: str
) -> None:
    samples = [make_sample(arm, f"u{i}", 1.0, accept_lengths=lengths) for i in range(5) for arm in ("ar", "ddtree 16")]
    assert [words in text for text in figures(make_record(samples).report).suspicious] == [True]


def test_record_survives_its_file(
    make_sample: MakeSample, make_record: MakeRecord, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("records") / "deeper" / "r.json"
    record = make_record(two_arms(make_sample))
    write_record(record, path)
    assert read_record(path) == record
    assert [file.name for file in path.parent.iterdir()] == ["r.json"]


def test_files_that_are_no_record(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bad")
    (folder / "half.json").write_text('{"kind": "benchmark", "ver')
    (folder / "other.json").write_text('{"kind": "plan", "version": 1}')
    with pytest.raises(RecordError, match="not a JSON document"):
        read_record(folder / "half.json")
    with pytest.raises(RecordError, match="expected a document of kind 'benchmark', got 'plan'"):
        read_record(folder / "other.json")
    with pytest.raises(UsageError, match=r"missing\.json cannot be read"):
        read_record(folder / "missing.json")


def test_across_records_compares_the_same_arm_and_warns(make_sample: MakeSample, make_record: MakeRecord) -> None:
    before = make_record([make_sample("ar", f"u{i}", 2.0) for i in range(12)])
    after = make_record([make_sample("ar", f"u{i}", 1.0) for i in range(12)], processor="Q", at="T1")
    text = across_text(compare_across(before, after, None))
    assert "2.00x" in text
    assert "not alternating" in text
    assert "processor differs: P against Q" in text


def test_across_records_that_do_not_fit(make_sample: MakeSample, make_record: MakeRecord) -> None:
    both = make_record(two_arms(make_sample))
    with pytest.raises(UsageError, match="ar, ddtree 16; name one"):
        compare_across(both, both, None)
    with pytest.raises(UsageError, match="'sglang' is not in both"):
        compare_across(both, both, "sglang")
    with pytest.raises(UsageError, match="different prompts"):
        compare_across(both, make_record(two_arms(make_sample), prompt_set_hash="other"), "ar")
