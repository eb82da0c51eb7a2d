//! What a request becomes: the transaction that PrepRequestProcessor makes of it.
//!
//! *Owns* the tree with everything that was proposed, committed or not. *Invariant*: after each decision the tree is
//! that behind the transaction.

use std::collections::BTreeMap;

use lockkeeper_core::proto::request::{Create, CreateKind};
use lockkeeper_core::proto::{Acl, ErrorCode, MultiOp, MultiResult, Request, Text};
use lockkeeper_core::replica::Machine;
use lockkeeper_core::tree::{Context, Identity, Options, Rules, Tree};
use lockkeeper_core::zookeeper::txn::kind;
use lockkeeper_core::zookeeper::{CreateTxn, Lifetime, SubTxn, TxnBody, TxnHeader};

/// The tree of the leader's first processor.
#[derive(Debug)]
pub struct Decider {
    tree: Tree,
}

/// Rules of the model.
const RULES: Rules = Rules { extended_types: true, ..Rules::DEFAULT };

/// How the trees of the model are configured.
pub fn options() -> Options {
    Options { rules: RULES, legacy_digest: true, ..Options::default() }
}

impl Decider {
    /// Of a fresh ensemble.
    pub fn fresh() -> Self {
        Self { tree: Tree::fresh(options()) }
    }

    /// Of a leader that has applied this, and nothing else.
    pub fn after(applied: &Machine) -> Self {
        let mut tree = Tree::empty(options());
        let loaded = applied.tree().for_each_persisted(|path, data, acl, stat| {
            tree.load_foreign(&Text::from(path), data, Some(acl), stat)
        });
        loaded.expect("it is a tree");
        Self { tree }
    }

    /// ZooKeeper's digest of the tree.
    pub fn digest(&self) -> u64 {
        self.tree.legacy_digest().expect("it is kept")
    }

    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Whether a leader makes a transaction of it.
    pub fn is_write(request: &Request) -> bool {
        matches!(
            request,
            Request::Create(_)
                | Request::Delete { .. }
                | Request::SetData { .. }
                | Request::SetAcl { .. }
                | Request::Multi(_)
                | Request::CloseSession
                | Request::Reconfig { .. }
        )
    }

    /// Decides a write, and does it. `None`: it is no write, and there is no transaction.
    pub fn decide(
        &mut self,
        header: &TxnHeader,
        request: &Request,
        ids: &[Identity],
    ) -> Option<(i32, TxnBody)> {
        let TxnHeader { zxid, time_ms, client_id: session, .. } = *header;
        let ctx = Context { zxid, time_ms, steady_ms: time_ms, session, ids, rules: RULES };
        let events = &mut Vec::new();
        let decided = match request {
            Request::Create(create) => self.tree.create(&ctx, create, events).map(|created| {
                (create.kind.op() as i32, TxnBody::Create(self.created(create, &created.path)))
            }),
            Request::Delete { path, version } => self
                .tree
                .delete(&ctx, path, *version, events)
                .map(|()| (kind::DELETE, TxnBody::Delete { path: path.clone() })),
            Request::SetData { path, data, version } => {
                let set = self.tree.set_data(&ctx, path, data.as_deref(), *version, events);
                set.map(|stat| {
                    let (path, data, version) = (path.clone(), data.clone(), stat.version);
                    (kind::SET_DATA, TxnBody::SetData { path, data, version })
                })
            }
            Request::SetAcl { path, acl, version } => {
                let set = self.tree.set_acl(&ctx, path, acl.as_deref(), *version);
                set.map(|stat| {
                    let acl = self.tree.acl_entries(path.as_str());
                    let body = TxnBody::SetAcl { path: path.clone(), acl, version: stat.aversion };
                    (kind::SET_ACL, body)
                })
            }
            Request::Multi(ops) => Ok((kind::MULTI, TxnBody::Multi(self.multi(&ctx, ops)))),
            Request::CloseSession => {
                let before = events.len();
                self.tree.close_session(&ctx, events);
                let gone = events[before..].iter().filter(|event| event.life.is_some());
                let paths = Some(gone.map(|event| event.path.clone()).collect());
                Ok((kind::CLOSE_SESSION, TxnBody::CloseSession { paths }))
            }
            Request::Reconfig { members, .. } => {
                let text = members.as_ref().map(Text::as_str).unwrap_or_default();
                self.tree.set_config(&ctx, None, text, events).map(|stat| {
                    let path = Text::from("/zookeeper/config");
                    let data = members.as_ref().map(|text| text.as_bytes().to_vec().into());
                    (kind::RECONFIG, TxnBody::SetData { path, data, version: stat.version })
                })
            }
            _ => return None,
        };
        Some(decided.unwrap_or_else(failed))
    }

    /// Removes a container or a znode whose time is over, if it has no children.
    pub fn reap(&mut self, header: &TxnHeader, path: &Text) -> (i32, TxnBody) {
        let TxnHeader { zxid, time_ms, .. } = *header;
        let ids = &[Identity::all_powerful()];
        let ctx = Context { zxid, time_ms, steady_ms: time_ms, session: 0, ids, rules: RULES };
        match self.tree.delete(&ctx, path, -1, &mut Vec::new()) {
            Ok(()) => (kind::DELETE_CONTAINER, TxnBody::Delete { path: path.clone() }),
            Err(code) => failed(code),
        }
    }

    fn created(&self, create: &Create, path: &Text) -> CreateTxn {
        CreateTxn {
            path: path.clone(),
            data: create.data.clone(),
            acl: self.tree.acl_entries(path.as_str()),
            lifetime: lifetime(create),
            parent_cversion: self.creates(parent_of(path.as_str())),
        }
    }

    /// How many children a znode ever had: clients are shown how many came and went.
    fn creates(&self, path: &str) -> i32 {
        let stat = self.tree.stat_unchecked(path).expect("it has a child");
        (stat.cversion + stat.num_children) / 2
    }

    fn multi(&mut self, ctx: &Context<'_>, ops: &[MultiOp]) -> Vec<SubTxn> {
        let mut creates: BTreeMap<String, i32> = BTreeMap::new();
        for op in ops {
            if let MultiOp::Create(create) = op
                && let parent = parent_of(create.path.as_str())
                && self.tree.stat_unchecked(parent).is_some()
            {
                creates.insert(parent.to_owned(), self.creates(parent));
            }
        }
        match self.tree.multi(ctx, ops, &mut Vec::new()) {
            Ok(results) => ops
                .iter()
                .zip(&results)
                .map(|(op, result)| succeeded(op, result, &mut creates))
                .collect(),
            Err(results) => {
                let subs = ops.iter().zip(&results).map(|(op, result)| match result {
                    // What would have happened: a learner must see that it did not.
                    MultiResult::Error(None) => succeeded(op, &asked(op), &mut creates),
                    MultiResult::Error(Some(code)) => sub(failed(*code)),
                    _ => unreachable!("all results are errors, or none is"),
                });
                subs.collect()
            }
        }
    }
}

fn failed(code: ErrorCode) -> (i32, TxnBody) {
    (kind::ERROR, TxnBody::Error { code: code.wire() })
}

fn sub((kind, body): (i32, TxnBody)) -> SubTxn {
    SubTxn { kind, body }
}

fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

fn lifetime(create: &Create) -> Lifetime {
    match create.kind {
        CreateKind::Container => Lifetime::Container,
        CreateKind::Ttl => Lifetime::Ttl(create.ttl_ms),
        _ if matches!(create.flags, 1 | 3) => Lifetime::Ephemeral,
        _ => Lifetime::Persistent,
    }
}

/// The result that an operation would have had, as far as its transaction shows it.
fn asked(op: &MultiOp) -> MultiResult {
    match op {
        MultiOp::Create(create) => MultiResult::Create { path: create.path.clone() },
        MultiOp::Delete { .. } => MultiResult::Delete,
        MultiOp::SetData { .. } => MultiResult::SetData { stat: Default::default() },
        MultiOp::Check { .. } => MultiResult::Check,
    }
}

fn succeeded(op: &MultiOp, result: &MultiResult, creates: &mut BTreeMap<String, i32>) -> SubTxn {
    sub(match (op, result) {
        (
            MultiOp::Create(create),
            MultiResult::Create { path } | MultiResult::Create2 { path, .. },
        ) => {
            let count = creates.entry(parent_of(path.as_str()).to_owned()).or_default();
            *count += 1;
            let parent_cversion = *count;
            creates.insert(path.as_str().to_owned(), 0);
            let mut create = create.clone();
            if create.flags == 4 {
                // ZooKeeper makes the operations of a multi anew, from their flags.
                create.kind = CreateKind::Container;
            }
            let body = CreateTxn {
                path: path.clone(),
                data: create.data.clone(),
                acl: create.acl.clone().unwrap_or_else(|| vec![Acl::open()]),
                lifetime: lifetime(&create),
                parent_cversion,
            };
            (create.kind.op() as i32, TxnBody::Create(body))
        }
        (MultiOp::Delete { path, .. }, _) => (kind::DELETE, TxnBody::Delete { path: path.clone() }),
        (MultiOp::SetData { path, data, .. }, MultiResult::SetData { stat }) => {
            let (path, data, version) = (path.clone(), data.clone(), stat.version);
            (kind::SET_DATA, TxnBody::SetData { path, data, version })
        }
        (MultiOp::Check { path, version }, _) => {
            (kind::CHECK, TxnBody::Check { path: path.clone(), version: *version })
        }
        _ => unreachable!("a result is that of its operation"),
    })
}
