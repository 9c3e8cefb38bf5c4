"""Every kernel equals its slow reference on whatever is drawn: here stands by which test."""

import ast
from pathlib import Path

from podscope_analyzers.kernels.compiled import all_kernels

HERE = Path(__file__).resolve().parents[1]
READER = "xspace/test_hostile_files.py::test_the_compiled_reader_equals_the_protobuf_one"
NOTABLE = "grouping/test_notable_events.py::test_the_notable_events_say_what_all_events_say"
GROUPING = (
    "grouping/test_against_slow_grouping.py::test_grouping_on_arrays_equals_grouping_on_objects"
)
SLOW_GROUPING = "grouping/test_against_slow_grouping.py::"
SPANS = "kernels/test_spans_and_groups.py::"
FOREST = "kernels/test_forest.py::"
STEPS = "steps/test_intersection.py::"

REFERENCES = {
    "activities._match": "op_metrics/test_host_ops.py"
    "::test_matching_equals_the_stack_of_the_description",
    "events.decode": READER,
    "events.hash_ids": READER,
    "factorise._number_ids": SPANS + "test_factorising_numbers_ids_by_appearance",
    "factorise._number_texts": READER,
    "forest.find_around": SLOW_GROUPING
    + "test_the_step_of_an_event_is_kept_as_long_as_it_overlaps",
    "forest.link_siblings": FOREST + "test_children_are_linked_in_their_order",
    "forest.merge_runs": SLOW_GROUPING + "test_runs_end_at_another_code_group_or_a_long_gap",
    "forest.nearest_marked": GROUPING,
    "forest.nearest_on_chains": GROUPING,
    "forest.spread_below": FOREST + "test_marks_spread_to_all_that_lies_below",
    "forest.spread_groups": GROUPING,
    "forest.spread_kept": NOTABLE,
    "groups._count_codes": SPANS + "test_codes_are_counted_and_others_left_out",
    "groups._number_cells": SPANS + "test_cells_of_a_table_are_those_of_their_codes",
    "groups._sum_groups": SPANS + "test_group_sums_equal_a_loop_over_events",
    "groups._sum_nested": SPANS + "test_sums_of_nested_events_equal_nesting_and_then_summing",
    "iterators._walk": "tf_data/test_walk.py::test_a_walk_visits_what_a_recursion_visits",
    "levels.merge": "kernels/test_derived_lines.py::test_levels_merge_as_the_rule_says",
    "offloads.pair": "kernels/test_derived_lines.py"
    "::test_ends_take_the_oldest_start_and_the_row_free_for_longest",
    "sieve.find_inner": NOTABLE,
    "sieve.find_levels": NOTABLE,
    "sieve.sift": NOTABLE,
    "sieve.take_outer": NOTABLE,
    "spans._extent": SPANS + "test_own_time_is_what_the_spans_within_leave_of_a_span",
    "spans._is_natural": SPANS + "test_natural_order_is_start_then_longest_first_and_stable",
    "spans._nest": SPANS + "test_nesting_equals_the_stack_of_its_definition",
    "spans._own_time_of_rows": SPANS + "test_own_time_is_what_the_spans_within_leave_of_a_span",
    "spans._union": SPANS + "test_the_union_covers_what_the_spans_cover",
    "steps._overlap_by_offset": STEPS + "test_the_compiled_sweep_equals_the_obvious_one",
    "steps._sum_outermost": SPANS + "test_sums_of_ranges_are_of_the_outermost_spans_of_each",
    "steps.sweep_steps": "steps/test_host_steps.py::test_every_moment_goes_to_the_highest_type",
    "survey.survey": "xspace/test_planes_and_lines.py"
    "::test_the_survey_of_a_long_line_says_what_its_columns_say",
    "wire.check_line": READER,
    "wire.entry_keys": READER,
    "wire.gather": READER,
    "wire.lift": READER,
    "wire.measure": READER,
    "wire.skip_events": READER,
}


def _drawn_tests(path: Path) -> set[str]:
    """The tests of a file whose arguments Hypothesis draws."""
    return {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(one).startswith("given(") for one in node.decorator_list)
    }


def test_every_kernel_has_a_slow_reference_and_drawn_examples() -> None:
    assert sorted(REFERENCES) == sorted(all_kernels())
    for test in set(REFERENCES.values()):
        file, _, name = test.partition("::")
        assert name in _drawn_tests(HERE / file), test
