//! One model per file, named after its race, and the broken twin of the model.
#![cfg(loom)]

mod cancel_against_notify;
mod close_against_sleep;
mod commit_against_retire;
mod compaction_against_catch_up;
mod compaction_against_dispatch;
mod compaction_against_follower;
mod compaction_against_reader;
mod compaction_against_transaction;
mod compaction_report_against_sleep;
mod compare_against_write;
mod count_against_create;
mod deadline_against_advance;
mod expiry_against_keep_alive;
mod expiry_against_move;
mod free_against_read;
mod publish_against_read;
mod registration_against_commit;
mod replace_against_read;
mod scan_against_commit;
mod snapshot_against_compaction;
mod split_against_read;
mod synced_against_commit;
mod two_committers;
mod wake_up_against_sleep;
