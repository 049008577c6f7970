//! What a store must keep, whatever the database: rules as plain functions over
//! a [`Place`](crate::support::Place), tried on each store that there is.
//!
//! A second store is one more line in [`store_contract!`].

mod claims;
mod contracts;
mod crashes;
mod damage;
mod faults;
mod fencing;
mod look_ups;
mod settling;
mod time;
mod verbs;

use crate::support::{SqliteFile, crm};

/// A receiver that remembers every key for ever.
const KEYED: &str = r#"mode = "idempotency_key", window = "forever""#;
/// A receiver without a promise.
const NONE: &str = r#"mode = "none""#;

/// The configuration of a receiver that remembers every key.
fn keyed() -> String {
    crm(KEYED, "", "")
}

macro_rules! store_contract {
    (stores { $($store:ident => $place:expr,)+ } rules $rules:tt) => {
        $(store_contract!(@store $store, $place, $rules);)+
    };
    (@store $store:ident, $place:expr, { $($about:ident { $($rule:ident,)+ })+ }) => {
        mod $store {
            use super::*;
            $(mod $about {
                use super::*;
                $(#[tokio::test] async fn $rule() { super::super::$about::$rule(&$place).await; })+
            })+
        }
    };
}

store_contract! {
    stores { on_sqlite => SqliteFile, }
    rules {
        claims {
            an_attempt_is_stored_before_it_is_handed_out,
            two_processes_never_begin_the_same_operation,
            no_operation_begins_while_another_attempt_of_it_is_open,
            operations_begin_by_due_time_and_then_in_order_of_recording,
            no_more_begins_than_there_is_room,
            what_was_committed_without_our_knowing_is_disowned_and_spends_nothing,
        }
        fencing {
            saving_the_same_end_again_changes_nothing,
            the_end_of_a_lost_claim_changes_nothing,
            an_end_that_another_process_claims_is_fenced,
            an_attempt_that_has_ended_for_good_takes_no_other_end,
            a_success_is_never_thrown_away,
            a_late_success_makes_it_sent_whatever_it_is,
            a_late_success_after_a_withdrawal_is_sent_and_said,
            a_second_different_receipt_is_said_and_the_first_is_kept,
            a_late_refused_connection_takes_the_doubt_away,
            an_attempt_that_our_stop_cut_off_is_in_doubt_and_spends_nothing,
        }
        crashes {
            an_attempt_of_a_dead_process_is_interrupted,
        an_open_attempt_whose_row_is_gone_is_in_doubt_and_stops_nothing,
        an_attempt_of_an_unreadable_process_stops_nothing,
            a_crash_with_one_in_flight_is_blamed_on_it,
            a_crash_with_several_in_flight_is_blamed_on_none,
            a_crash_with_one_suspect_in_flight_is_blamed_on_the_suspect,
            three_crashes_with_one_alone_in_flight_block_it_as_crashed,
            a_crash_where_nothing_may_be_repeated_is_ambiguous_at_once,
            suspects_are_tried_one_at_a_time_with_others_beside_them,
            a_suspect_that_got_its_answer_is_none_any_more,
        }
        damage {
            an_unknown_type_parks_the_row_until_it_is_configured,
            an_unknown_receiver_parks_the_row_until_it_is_configured,
            another_version_of_the_same_subject_is_invalid,
            independent_versions_of_one_subject_are_different_acts,
            a_word_that_nobody_knows_blocks_its_row_alone,
            a_state_that_nobody_knows_is_seen_and_stops_nothing_else,
            a_payload_that_does_not_fit_its_fingerprint_is_invalid,
            a_payload_that_is_no_json_is_invalid,
            a_text_that_is_no_utf_8_blocks_its_row_alone,
            an_invalid_row_is_delivered_after_it_was_mended_and_retried,
        }
        time {
            nothing_is_delivered_before_its_time,
            nothing_is_tried_again_before_its_time,
            a_retry_impossibly_far_ahead_is_brought_forward,
            a_pause_lasts_as_long_whatever_the_clock_is_set_to,
            a_clock_set_forward_spends_no_budget_and_ends_no_settling,
            a_pause_moves_with_the_clock_also_while_its_operation_is_blocked,
            an_answer_after_a_step_is_added_to_what_the_step_has_moved,
            nothing_hangs_on_a_clock_that_was_ahead_while_its_receiver_was_gone,
            a_pause_asked_for_while_the_receiver_was_gone_holds_when_it_is_back,
            a_delivery_asked_for_far_ahead_is_not_brought_forward,
            a_retry_after_is_kept_as_far_as_the_ceiling,
            an_approval_that_is_too_old_expires,
            an_approval_in_doubt_does_not_expire,
            a_repeat_is_made_only_while_the_receiver_remembers_the_key,
            a_clock_set_back_does_not_open_a_window_again,
            the_budget_ends_by_time_as_well,
            a_repeat_waits_until_the_receiver_has_settled,
        }
        contracts {
            every_answer_ends_as_the_table_says,
            a_definite_no_after_a_doubt_keeps_the_doubt,
            a_refused_connection_after_a_doubt_keeps_the_doubt,
            what_the_receiver_is_still_at_work_on_is_asked_again,
            exists_proves_only_where_the_contract_says_so,
            another_address_is_another_account,
            the_same_account_under_another_address_is_the_same_request,
        }
        faults {
            every_fault_ends_as_its_contract_says,
            a_server_error_makes_one_task_whether_it_was_accepted_or_not,
            a_reply_that_takes_too_long_is_unknown,
            every_crash_ends_as_its_contract_says,
            a_crm_that_lies_about_its_keys_shows_as_two_tasks,
        }
        look_ups {
            a_lost_reply_is_looked_up_and_settled_without_a_second_task,
            a_look_up_begins_only_when_the_receiver_can_act_no_more,
            each_finding_ends_as_the_table_says,
            an_absence_is_believed_after_the_declared_look_ups_and_licenses_no_repeat,
            a_look_up_that_cannot_tell_is_made_again_as_often_as_the_budget_says,
            a_receiver_that_acts_late_is_found_by_the_second_look_up,
            several_records_or_other_content_block_as_a_conflict,
            what_a_person_has_edited_is_not_overwritten_by_a_repeat,
            what_was_never_made_is_delivered_after_an_absence_where_a_repeat_is_allowed,
            a_look_up_of_a_dead_process_changes_nothing_and_is_made_again,
            an_absence_at_another_account_proves_nothing,
        }
        settling {
            a_reconciliation_looks_once_and_settles_what_is_found,
            a_reconciliation_that_finds_nothing_leaves_it_with_the_person,
            what_is_withdrawn_is_sent_if_a_look_up_finds_it_and_that_is_said,
            no_reconciliation_where_the_receiver_cannot_be_asked,
            a_look_up_that_can_no_longer_be_made_is_not_waited_for,
            a_person_vouches_for_what_was_sent_and_a_reply_outranks_it,
            not_sent_begins_anew_with_the_same_key_and_payload,
            whoever_looked_too_early_is_refused_unless_it_is_forced,
            a_persons_own_word_can_be_taken_back_and_no_others,
            an_earlier_attempt_that_answers_after_not_sent_changes_no_doubt_of_a_later_one,
            a_success_after_not_sent_and_another_delivery_is_two_receipts,
            the_same_word_said_twice_is_refused_the_second_time,
            an_absence_that_was_looked_for_too_early_counts_for_nothing,
        }
        verbs {
            a_retry_is_one_more_delivery_after_the_budget,
            a_retry_is_refused_where_the_contract_allows_no_repeat,
            a_verb_is_bound_to_the_version_that_was_seen,
            a_withdrawn_operation_is_never_delivered,
            every_act_is_chained_to_the_one_before,
        }
    }
}
