"""Tests that ``make check`` leaves out.

Tests of more than about a second of processor time are listed here, files by their path and tests by name, so that one
place holds what was measured (``pytest --durations=60``). A test may carry the mark ``slow`` in its own file instead.
"""

from __future__ import annotations

__all__ = ["SLOW_FILES", "SLOW_TESTS"]

# Files that start processes, compile, or compute a result that takes seconds for all of their tests.
SLOW_FILES = frozenset(
    {
        "docs/add-a-policy.md",
        "tests/clicks/fitting/test_identification.py",
        "tests/clicks/offpolicy/test_estimator_statistics.py",
        "tests/clicks/offpolicy/test_replay.py",
        "tests/experiments/test_fitted_world.py",
        "tests/experiments/test_reproduce.py",
        "tests/geometry/test_leader_certificates.py",
        "tests/geometry/test_leader_twins.py",
        "tests/geometry/test_sampling.py",
        "tests/serve/http/test_benchmark.py",
        "tests/serve/http/test_real_engine.py",
        "tests/serve/ops/test_run.py",
        "tests/test_kernels.py",
    }
)

# Functions, with all their parameters.
SLOW_TESTS = frozenset(
    {
        # benchmarks
        "test_a_straightforward_implementation_earns_the_same_and_a_broken_one_does_not",
        # blocks of time
        "test_a_surface_with_a_window_forgets_what_visitors_liked_before",
        "test_blocks_that_depend_on_the_order_of_arrival_are_caught",
        "test_two_orders_of_settling_give_equal_blocks",
        # arms and visitors
        "test_a_page_that_loses_the_feedback_of_one_arm_hides_the_comparisons",
        "test_a_store_of_version_5_gets_visitors_and_arms",
        "test_the_arm_stays_with_the_visitor_and_her_id_is_not_stored",
        "test_the_guard_replaces_the_arm_that_is_worse_and_no_other",
        "test_visitors_of_different_habits_make_no_difference_if_they_are_the_units_and_do_if_pages_are",
        # clicks that depend on each other, and adversaries
        "test_regret_flattens_in_the_cascade_model",
        "test_the_figure_of_attacks_is_drawn",
        "test_the_model_of_a_world_whose_clicks_depend_on_each_other_is_chosen",
        # deletion
        "test_checkpoints_agree_with_blocks_of_any_age",
        "test_each_event_is_counted_once_though_it_is_deleted_while_clicks_arrive",
        "test_kill_9_leaves_either_the_row_or_the_checkpoint",
        # click logs
        "test_a_bad_row_is_refused_by_file_line_and_reason_or_skipped_and_counted",
        "test_a_first_line_that_is_broken_is_no_document",
        "test_a_layout_is_detected_for_any_file_name",
        "test_a_learner_earns_more_than_the_log_it_learned_from",
        "test_a_log_in_memory_is_checked_like_a_file",
        "test_a_packed_file_that_ends_too_early_is_named",
        "test_chance_in_the_training_half_does_not_bias_the_evaluation",
        "test_compiled_and_interpreted_fits_agree",
        "test_ctrl_c_ends_an_evaluation_in_one_line",
        "test_ctrl_c_ends_fit_and_generate",
        "test_empty_and_bad_lines_between_clicks_do_not_matter_either",
        "test_every_layout_with_pages_filters_alike",
        "test_every_type_with_named_columns_is_a_log",
        "test_every_layout_has_the_same_pages",
        "test_every_model_is_fitted_printed_drawn_and_saved",
        "test_first_derivatives_alone_reach_the_same_maximum",
        "test_ignored_clicks_are_those_of_the_query",
        "test_names_with_commas_are_quoted_as_in_csv_or_in_a_json_list",
        "test_no_other_optimiser_finds_more",
        "test_second_trap_em_that_absorbs_at_one",
        "test_every_model_is_drawn",
        "test_logs_with_hardly_any_clicks_or_skips_are_fitted",
        "test_thompson_sampling_evaluated_on_random_lists_has_its_online_click_rate",
        "test_the_fit_is_the_maximum_of_the_likelihood",
        "test_the_logged_estimate_does_not_depend_on_the_target",
        "test_the_truth_is_recovered",
        "test_on_real_pages_no_other_optimiser_finds_more",
        "test_the_true_model_is_first_or_cannot_be_told_from_the_first",
        # notebooks
        "test_a_notebook_runs",
        # command line and geometry
        "test_a_distant_warm_start_gives_the_same_result",
        "test_a_piped_table_is_complete",
        "test_a_plot_is_drawn_and_the_same_every_time",
        "test_a_warm_start_from_the_round_before_takes_few_steps",
        "test_an_interrupt_while_compiling_ends_the_program_at_once",
        "test_compiled_and_interpreted_kernels_agree",
        "test_marginals_are_exact_if_peeling_is_cut_short",
        "test_playing_needs_neither_figures_nor_tables_nor_a_terminal",
        "test_python_m_bothworlds_runs_the_commands",
        "test_the_arena_writes_a_table_results_and_figures",
        "test_a_closed_pipe_ends_the_program_silently",
        "test_an_interrupt_while_playing_ends_the_program",
        "test_it_prints_a_table_a_sentence_and_the_rules",
        "test_every_fit_can_be_drawn_and_written",
        "test_no_list_has_a_larger_sum",
        "test_the_leader_is_that_of_a_row_for_every_item",
        "test_the_program_prints_errors_in_one_line",
        # imports
        "test_all_public_names_resolve_in_a_fresh_interpreter_in_any_order",
        "test_every_documented_module_is_reachable_from_the_package",
        "test_gymnasium_is_imported_only_if_it_is_used",
        # arena and experiments
        "test_a_newcomer_is_not_shown_before_it_arrives",
        "test_realised_clicks_agree_with_the_expected_reward",
        "test_the_number_of_jobs_makes_no_difference",
        "test_loops_of_all_playable_policies_are_cached_on_disk",
        "test_shuffled_labels_are_uniform",
        "test_the_question_is_played_on_request_only",
        # policies
        "test_comb_ucb_shows_a_list_with_the_largest_sum_of_bounds",
        "test_decided_lists_follow_the_marginals",
        "test_every_round_agrees_with_a_plain_implementation",
        "test_every_possible_shape_is_played",
        "test_every_round_agrees_with_the_reference_implementation",
        "test_every_round_is_one_step_from_the_last",
        "test_it_agrees_when_the_sampler_sleeps_and_clicks_are_no_product",
        "test_it_agrees_when_users_change",
        "test_it_earns_more_where_users_change",
        "test_it_shows_the_leader_once_in_a_cycle_and_the_best_neighbour_otherwise",
        "test_kl_comb_ucb_shows_a_list_with_the_largest_sum_of_bounds",
        "test_lists_are_drawn_from_that_distribution",
        "test_propensities_are_the_frequencies_of_many_draws",
        "test_steady_users_cause_no_alarm",
        "test_the_distribution_of_the_chain_is_the_posterior",
        # checks of policies
        "test_a_broken_policy_is_caught_by_the_check_meant_for_it",
        "test_a_check_gives_the_same_verdict_again",
        "test_a_correct_third_party_policy_passes",
        "test_check_policy_fails_for_a_broken_policy",
        "test_every_registered_policy_passes",
        # items of a ranker
        "test_a_damaged_file_is_refused_or_harmless",
        "test_a_loaded_ranker_of_another_process_has_the_same_future",
        "test_constraints_do_not_bias_what_is_learned",
        # service
        "test_excluded_and_pinned_items_are_learned_about_without_bias",
        "test_another_name_for_a_file_in_use_does_not_give_it_a_second_owner",
        "test_the_shift_alarm_is_not_raised_however_often_one_looks",
        "test_uvicorn_has_the_attributes_that_are_read",
        "test_a_client_that_pipelines_waits_its_turn",
        "test_a_store_keeps_the_contract",
        "test_a_thousand_items_are_shown_in_part_unless_all_are_requested",
        "test_a_young_surface_is_still_learning_and_is_compared_once_it_has_settled",
        "test_an_export_that_fails_midway_is_truncated_visibly",
        "test_an_exported_log_is_evaluated_by_its_drawn_clicks",
        "test_any_text_is_read_or_refused",
        "test_batches_and_refreshes_have_spans",
        "test_connections_are_refused_before_descriptors_run_out",
        "test_empty_pieces_do_not_extend_the_timeout",
        "test_every_response_is_documented",
        "test_exhausted_descriptors_are_counted_and_logged",
        "test_no_text_in_a_form_is_a_fault_of_the_service",
        "test_only_a_trusted_proxy_sets_the_scheme",
        "test_shuffled_duplicated_and_split_feedback_gives_the_same_counters",
        "test_the_demo_starts_the_service_sends_visitors_and_starts_again",
        "test_twenty_thousand_items_are_ranked_learned_and_reported_in_part",
        "test_uvicorn_alone_parses_thousands_of_pipelined_requests_first",
        "test_without_key_role_or_store_the_documented_status_is_returned",
    }
)
