//! The application: it records in its own transaction, by the library or in
//! plain SQL, or leaves it to the daemon's store; new, again, or with other
//! content under the same key; and sometimes it thinks better of it.

use crate::crm::Mode;
use crate::lanes::{Lane, NAMES};
use crate::rows::rows;
use crate::world::World;
use handoff::rusqlite::types::Value;
use handoff::rusqlite::{Transaction, TransactionBehavior};
use handoff::{Operation, OperationKey, Payload, RecordError, Recorded};

/// What is to be recorded.
#[derive(Clone, Debug)]
struct Wish {
    key: String,
    receiver: String,
    /// As it is written down.
    text: String,
    deliver_after: Option<i64>,
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Library,
    Sql(&'static str),
    Store,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    New,
    Existing,
    Conflict,
    Refused(String),
    /// The store could not, or cannot tell.
    Trouble(String),
}

fn text(case: &str, title: &str, blank: &str) -> String {
    format!("{{{blank}\"case_id\":\"{case}\",{blank}\"title\":\"{title}\"}}")
}

impl World {
    /// The application records something.
    pub(crate) async fn record(&mut self) {
        let lanes = self.site.look().lanes.clone();
        let lane = lanes[self.chance.place(lanes.len())].clone();
        let known: Vec<String> = self.site.look().payloads.keys().cloned().collect();
        let again = !known.is_empty() && self.chance.one_in(3);
        let mut wish = if again {
            let key = known[self.chance.place(known.len())].clone();
            self.wish_again(key)
        } else {
            self.wish(&lane)
        };
        let way = match self.chance.below(6) {
            0 | 1 => Way::Sql(self.chance.pick(&["", "OR IGNORE", "OR REPLACE", "OR FAIL"])),
            2 | 3 if self.process.is_some() && is_valid(&wish.text) => Way::Store,
            _ => Way::Library,
        };
        if way == Way::Store {
            // As the command line does: the type has seen it before.
            wish.text = canonical(&wish.text);
        }
        let commits = !self.chance.one_in(5);
        self.note(format!("record {wish:?} by {way:?}, commits: {commits}"));
        let before = self.row(&wish.key);
        let answer = match way {
            Way::Store => self.by_store(&wish).await,
            _ => self.in_own_transaction(&wish, way, commits),
        };
        self.note(format!("  {answer:?}"));
        self.judge(&wish, &before, &answer, way == Way::Store || commits);
    }

    fn wish(&mut self, lane: &Lane) -> Wish {
        self.cases += 1;
        let case = format!("case-{}", self.cases);
        let title = match self.chance.below(30) {
            0 => "  ".to_owned(),
            1 => "x".repeat(161),
            2..=4 => format!("  Call about {case} "),
            _ => format!("Call about {case}"),
        };
        let now = self.site.look().times.wall().as_millis();
        let later = self.chance.pick(&[2_000, 40_000, 4_000_000]);
        let deliver_after = self.chance.one_in(8).then_some(now + later);
        let key = format!("harbor:{}:v1:{case}", lane.kind());
        let blank = self.chance.pick(&["", " ", "\t"]);
        let text = text(&case, &title, blank);
        if self.chance.one_in(8) {
            // The receiver holds something else under this key.
            let mut ground = self.site.look();
            let now = ground.times.truth;
            if !lane.truth.proof && lane.truth.mode != Mode::Overwrites {
                ground.crms[lane.place].put(&lane.account, &key, now);
            }
        }
        Wish { key, receiver: lane.name().to_owned(), text, deliver_after }
    }

    /// The same once more, or nearly the same.
    fn wish_again(&mut self, key: String) -> Wish {
        let sql = format!(
            "SELECT receiver, payload FROM handoff_approvals WHERE operation_key = '{key}'"
        );
        let row = rows(&self.site.look().db, &sql).remove(0);
        let [Value::Text(receiver), Value::Text(stored)] = &row[..] else { panic!("{row:?}") };
        let (mut receiver, mut written) = (receiver.clone(), stored.clone());
        match self.chance.below(4) {
            0 => {
                let case = key.rsplit(':').next().unwrap();
                written = text(case, "Something else", "");
            }
            1 if NAMES.iter().any(|name| *name != receiver) => {
                let others: Vec<&str> =
                    NAMES.iter().copied().filter(|name| *name != receiver).collect();
                receiver = self.chance.pick(&others).to_owned();
            }
            2 => written = written.replace("{ ", "{").replace(", ", ","),
            _ => {}
        }
        Wish { key, receiver, text: written, deliver_after: None }
    }

    fn in_own_transaction(&mut self, wish: &Wish, way: Way, commits: bool) -> Answer {
        let mut ground = self.site.look();
        let tx = ground.db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let answer = match way {
            Way::Sql(clause) => in_sql(&tx, wish, clause),
            Way::Library | Way::Store => answer(handoff::record(&tx, &operation(wish))),
        };
        if commits {
            tx.commit().unwrap()
        } else {
            tx.rollback().unwrap()
        }
        answer
    }

    async fn by_store(&mut self, wish: &Wish) -> Answer {
        self.draw_faults();
        let process = self.process.as_ref().unwrap();
        let recording = process.store.record(&process.rules, operation(wish));
        let done = self.unless_it_dies(recording).await;
        self.site.look().plan.clear();
        match done {
            None => {
                self.crash(false).await;
                Answer::Trouble("it died".to_owned())
            }
            Some(Err(error)) => Answer::Trouble(error.to_string()),
            Some(Ok(recorded)) => answer(recorded),
        }
    }

    fn row(&self, key: &str) -> Vec<Vec<Value>> {
        let sql = format!(
            "SELECT * FROM handoff_outbox JOIN handoff_approvals USING (operation_key)
              WHERE operation_key = '{key}'"
        );
        rows(&self.site.look().db, &sql)
    }

    /// The same is the same, other content changes nothing, and what was
    /// committed is there.
    fn judge(&mut self, wish: &Wish, before: &[Vec<Value>], answer: &Answer, committed: bool) {
        let after = self.row(&wish.key);
        let mut ground = self.site.look();
        let existed = !before.is_empty();
        if existed && after != before {
            ground.violation(format!("recording {wish:?} again changed {before:?} to {after:?}"));
        }
        let expected = ground.expected(&wish.key).cloned();
        let same = expected.as_deref() == Some(canonical(&wish.text).as_str())
            && ground.seen.get(&wish.key).is_some_and(|row| row.receiver == wish.receiver);
        let fits = match answer {
            Answer::New => !existed && after.is_empty() != committed,
            Answer::Existing => existed && same,
            Answer::Conflict => existed && !same,
            Answer::Refused(why) => {
                !existed && after.is_empty() && why.contains("unknown receiver")
            }
            Answer::Trouble(_) => true,
        };
        if !fits {
            ground.violation(format!("recording {wish:?} was answered {answer:?}: {after:?}"));
        }
        ground.count(match answer {
            Answer::New if committed => "recorded",
            Answer::New => "rolled back",
            Answer::Existing => "recorded again",
            Answer::Conflict => "recording refused as a conflict",
            Answer::Refused(_) => "recording refused",
            Answer::Trouble(_) => "recording in doubt",
        });
        // Whether a recording in doubt took place is read by its key.
        if !existed && !after.is_empty() {
            ground.payloads.insert(wish.key.clone(), canonical(&wish.text));
        }
    }
}

/// What must be delivered: the canonical form, with its title trimmed.
fn canonical(written: &str) -> String {
    let payload: serde_json::Value = serde_json::from_str(written).unwrap();
    let field = |name: &str| payload[name].as_str().unwrap().trim().to_owned();
    text(&field("case_id"), &field("title"), "")
}

/// Its type takes it.
pub(crate) fn is_valid(written: &str) -> bool {
    let payload: serde_json::Value = serde_json::from_str(&canonical(written)).unwrap();
    (1..=160).contains(&payload["title"].as_str().unwrap().len())
}

fn operation(wish: &Wish) -> Operation {
    let key: OperationKey = wish.key.parse().unwrap();
    let payload = Payload::parse(&wish.text).unwrap();
    let operation = Operation::new(key, &wish.receiver, payload, "ann").unwrap();
    let time = wish.deliver_after.map(handoff::clock::Timestamp::from_millis);
    Operation { deliver_after: time, ..operation }
}

fn in_sql(tx: &Transaction<'_>, wish: &Wish, clause: &str) -> Answer {
    let sql = format!(
        "INSERT {clause} INTO handoff_approvals
           (operation_key, receiver, payload, approved_by, deliver_after)
         VALUES (?1, ?2, ?3, 'ann', ?4)"
    );
    let values = (&wish.key, &wish.receiver, &wish.text, wish.deliver_after);
    match tx.execute(&sql, values) {
        Ok(1) => Answer::New,
        Ok(_) => Answer::Existing,
        Err(error) if error.to_string().contains("handoff: conflict") => Answer::Conflict,
        Err(error) => Answer::Refused(error.to_string()),
    }
}

fn answer(recorded: Result<Recorded, RecordError>) -> Answer {
    match recorded {
        Ok(Recorded::New) => Answer::New,
        Ok(Recorded::Existing { .. }) => Answer::Existing,
        Err(error) if error.is_conflict() => Answer::Conflict,
        Err(error) => Answer::Refused(error.to_string()),
    }
}
