//! The stored facts of every operation, compared with its history.

use super::World;
use super::fold::recomputed;
use handoff::outbox::contract::Exists;
use handoff::outbox::facts::{AttemptKind, Facts};

/// The stored facts follow from the history, and the effect from the facts.
pub(crate) async fn check(world: &World) {
    for row in world.store.list(handoff::store::Filter::default()).await.unwrap() {
        let key = &row.operation_key;
        // The time that a receiver asked for is not kept with its attempt.
        let proves = world.rules.terms(&row.receiver).contract.exists == Exists::Proof;
        let recomputed = recomputed(&|sql| world.site.rows(sql), key, proves);
        let facts = Facts { not_before: row.facts.not_before, ..recomputed };
        assert_eq!(row.facts, facts, "{key}: stored and recomputed");
        let contract = &world.rules.terms(&row.receiver).contract;
        assert_eq!(row.effect, facts.effect(contract), "{key}: effect");
        assert_eq!(row.attempts, facts.attempts, "{key}: attempts");
        let history = world.store.history(key).await.unwrap();
        let first = history.iter().find(|one| one.kind == AttemptKind::Deliver);
        let first = first.map(|one| one.started_at);
        assert_eq!(row.first_attempt_at, first, "{key}: first attempt");
    }
}
