"""Tests that ``make check`` leaves out.

Tests of more than about a second of processor time are listed here, files by their path in ``tests/`` and tests by
name, so that one place holds what was measured (``pytest --durations=60``). A test may carry the mark ``slow`` in its
own file instead.
"""

from __future__ import annotations

__all__ = ["SLOW_FILES", "SLOW_TESTS"]

# Files of which every test is slow: each starts processes, a browser or a database, or plays whole experiments.
SLOW_FILES = frozenset(
    {
        "clicks/test_evaluation_replay.py",
        "clicks/test_evaluation_statistics.py",
        "clicks/test_identification.py",
        "serve/http/test_benchmark.py",
        "serve/http/test_running.py",
        "serve/http/test_whole.py",
        "serve/test_absence.py",
    }
)

# Functions, with all their parameters.
SLOW_TESTS = frozenset(
    {
        # click logs
        "test_a_bad_row_is_refused_by_file_line_and_reason_or_skipped_and_counted",
        "test_a_first_line_that_is_broken_is_no_document",
        "test_a_layout_is_found_whatever_the_name_of_the_file",
        "test_a_learner_earns_more_than_the_log_it_learned_from",
        "test_a_log_in_memory_is_checked_like_a_file",
        "test_a_packed_file_that_ends_too_early_is_named",
        "test_compiled_and_interpreted_fits_agree",
        "test_ctrl_c_ends_a_fit_and_what_is_generated",
        "test_ctrl_c_ends_an_evaluation_in_one_line",
        "test_empty_and_bad_lines_between_clicks_do_not_matter_either",
        "test_every_layout_with_pages_filters_alike",
        "test_ignored_clicks_are_those_of_the_query",
        "test_luck_in_the_lesson_does_not_count_in_the_judgement",
        "test_names_with_commas_are_quoted_as_in_csv_or_in_a_json_list",
        "test_no_other_optimiser_finds_more",
        "test_whatever_has_named_columns_is_a_log",
        # policies
        "test_comb_ucb_shows_a_list_with_the_largest_sum_of_bounds",
        "test_decided_lists_follow_the_marginals",
        "test_every_possible_shape_is_played",
        "test_every_round_is_one_step_from_the_last",
        "test_every_round_is_that_of_the_plain_twin",
        "test_it_shows_the_leader_once_in_a_cycle_and_the_best_neighbour_otherwise",
        "test_kl_comb_ucb_shows_a_list_with_the_largest_sum_of_bounds",
        "test_lists_are_drawn_from_that_law",
        "test_propensities_are_the_frequencies_of_many_draws",
        "test_the_law_of_the_chain_is_the_posterior",
        # service
        "test_a_client_that_pipelines_waits_its_turn",
        "test_a_log_that_breaks_off_in_the_middle_is_no_whole_answer",
        "test_a_store_keeps_the_contract",
        "test_a_thousand_items_are_shown_in_part_until_all_are_asked_for",
        "test_a_young_surface_that_has_found_the_right_order_is_not_said_to_lose",
        "test_any_text_is_read_or_refused",
        "test_connections_are_refused_before_descriptors_run_out",
        "test_descriptors_that_ran_out_are_counted_and_logged",
        "test_more_than_can_be_written_is_refused",
        "test_only_a_trusted_proxy_can_say_that_pages_come_over_tls",
        "test_shuffled_doubled_and_split_reports_give_the_same_counters",
        "test_the_demo_starts_the_service_sends_visitors_and_starts_again",
        "test_whatever_is_sent_gets_an_answer_that_is_documented",
        "test_whoever_sends_nothing_again_and_again_does_not_stay_for_ever",
        "test_without_a_key_or_a_role_or_a_store_the_documented_status_comes",
        "test_without_turns_thousands_of_requests_are_parsed_first",
    }
)
