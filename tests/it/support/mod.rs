//! What every rule needs: a place of its own, the real parts set up in it, and
//! time that moves only when it is told to.

pub(crate) mod fold;
pub(crate) mod history;
pub(crate) mod place;
pub(crate) mod process;
pub(crate) mod site;
pub(crate) mod world;

pub(crate) use place::{Place, SqliteFile, Value};
pub(crate) use process::{Daemon, eventually, fifo, release, told, until};
pub(crate) use site::{Site, command, crm, key};
pub(crate) use world::World;
