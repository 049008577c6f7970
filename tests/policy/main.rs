//! The policy, tried whole: every combination of facts, contract and surroundings,
//! short histories, and a small model of one operation and its receiver.
//!
//! `table` is the policy's table written a second time, from its text; `space`
//! enumerates combinations; `laws` and `verbs` say what holds for each of them.
//! `history` works the facts out anew from attempts and words; `story` compares
//! them with those carried along, `late` tells the stories of late answers.
//! `world` is a receiver and a daemon that do their worst, `model` visits every
//! state that a few moves can reach.

mod history;
mod late;
mod laws;
mod model;
mod space;
mod story;
mod table;
mod verbs;
mod world;
