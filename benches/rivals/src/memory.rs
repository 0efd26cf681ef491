//! The memory of the engine: nodes, records and the pool, from its sources.

#[path = "../../../engine/src/memory/node.rs"]
mod node;
#[path = "../../../engine/src/memory/pool.rs"]
mod pool;
#[expect(dead_code, reason = "the maps use a part of the file")]
#[path = "../../../engine/src/memory/thin.rs"]
mod thin;

pub(crate) use node::{NewNode, Node, NodeCell, NodePointer, OldNode};
pub(crate) use thin::{AtomicThin, Thin};
