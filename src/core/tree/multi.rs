//! multi: several writes, all or nothing.
//!
//! *Owns* the loop and the two forms of the answer. *Invariants*: an operation sees the ones
//! before it, quotas included; after a failure the tree is what it was, and no watch has fired.
//! Reproduces the multi part of `PrepRequestProcessor` and `DataTree`.

use crate::proto::request::{Create, CreateKind};
use crate::proto::{ErrorCode, MultiOp, MultiResult};

use super::{Context, Event, Tree};

impl Tree {
    /// Does all operations, or none.
    ///
    /// # Errors
    /// The results as the wire wants them after a failure: no error in front of the operation that
    /// failed, then its code, then RuntimeInconsistency.
    pub fn multi(
        &mut self,
        ctx: &Context<'_>,
        ops: &[MultiOp],
        events: &mut Vec<Event>,
    ) -> Result<Vec<MultiResult>, Vec<MultiResult>> {
        let events_before = events.len();
        let mut results = Vec::with_capacity(ops.len());
        self.open_journal();
        for op in ops {
            match self.one_of_multi(ctx, op, events) {
                Ok(result) => results.push(result),
                Err(code) => {
                    if mutant!("multi-keeps-half") {
                        self.keep_edits();
                    }
                    self.take_back_edits();
                    events.truncate(events_before);
                    return Err(failure(results.len(), code, ops.len()));
                }
            }
        }
        self.keep_edits();
        Ok(results)
    }

    fn one_of_multi(
        &mut self,
        ctx: &Context<'_>,
        op: &MultiOp,
        events: &mut Vec<Event>,
    ) -> Result<MultiResult, ErrorCode> {
        Ok(match op {
            MultiOp::Create(create) if makes_container(create) => {
                let create = Create { kind: CreateKind::Container, ..create.clone() };
                let created = self.create(ctx, &create, events)?;
                MultiResult::Create2 { path: created.path, stat: created.stat }
            }
            MultiOp::Create(create) => {
                let created = self.create(ctx, create, events)?;
                match create.kind {
                    CreateKind::Create => MultiResult::Create { path: created.path },
                    CreateKind::Create2 | CreateKind::Container | CreateKind::Ttl => {
                        MultiResult::Create2 { path: created.path, stat: created.stat }
                    }
                }
            }
            MultiOp::Delete { path, version } => {
                self.delete(ctx, path, *version, events)?;
                MultiResult::Delete
            }
            MultiOp::SetData { path, data, version } => {
                let stat = self.set_data(ctx, path, data.as_deref(), *version, events)?;
                MultiResult::SetData { stat }
            }
            MultiOp::Check { path, version } => {
                self.check(ctx, path, *version)?;
                MultiResult::Check
            }
        })
    }
}

/// Only inside a multi does the container flag turn op create into createContainer: ZooKeeper
/// rebuilds the operations of a multi from their flags (`Op.Create.getOpcode`).
fn makes_container(create: &Create) -> bool {
    create.flags == 4 && matches!(create.kind, CreateKind::Create | CreateKind::Create2)
}

/// Results of a multi whose operation behind so many others failed.
#[must_use]
pub fn failure(done: usize, code: ErrorCode, all: usize) -> Vec<MultiResult> {
    let mut results = vec![MultiResult::Error(None); done];
    results.push(MultiResult::Error(Some(code)));
    results.resize(all, MultiResult::Error(Some(ErrorCode::RuntimeInconsistency)));
    results
}
