//! Small things that outlive a process: where the clocks stood, and from which fact on
//! attempts count after a person's word that nothing had happened.

use crate::clock::{SteadyMark, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use std::time::Duration;

const STEADY: &str = "clock.steady";

/// Writes the steady clock's mark.
pub(super) fn write_mark(db: &Connection, mark: &SteadyMark) -> Result<(), rusqlite::Error> {
    let SteadyMark { wall, steady, boot_time, boot_id } = mark;
    let (wall, steady) = (wall.as_millis(), steady.as_millis());
    let value = format!("{wall} {steady} {} {boot_id}", boot_time.as_millis());
    db.prepare_cached(
        "INSERT INTO handoff_meta (name, value) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    )?
    .execute(params![STEADY, value])?;
    Ok(())
}

/// The same, unless one of the same boot is there that is no earlier: a process that
/// has been taken for dead may have minded a step since this one was taken.
pub(super) fn keep_mark(db: &Connection, mark: &SteadyMark) -> Result<(), rusqlite::Error> {
    let is_kept =
        |kept: SteadyMark| kept.boot_id == mark.boot_id && kept.boot_time >= mark.boot_time;
    if read_mark(db)?.is_some_and(is_kept) { Ok(()) } else { write_mark(db, mark) }
}

/// Reads it back; `None` if there is none, or none that can be read.
pub(super) fn read_mark(db: &Connection) -> Result<Option<SteadyMark>, rusqlite::Error> {
    let value: Option<String> = db
        .prepare_cached("SELECT value FROM handoff_meta WHERE name = ?1")?
        .query_row([STEADY], |row| row.get(0))
        .optional()?;
    Ok(value.as_deref().and_then(parse_mark))
}

/// Keeps which fact was a person's word that none of the attempts so far has acted.
pub(super) fn keep_resolution(
    db: &Connection,
    key: &str,
    version: u64,
) -> Result<(), rusqlite::Error> {
    db.prepare_cached(
        "INSERT INTO handoff_meta (name, value) VALUES ('not_sent ' || ?1, ?2)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    )?
    .execute(params![key, version.to_string()])?;
    Ok(())
}

/// The last such fact of an operation; 0 if there is none. What cannot be read is
/// none: more attempts may then have acted, not fewer.
pub(super) fn resolution(db: &Connection, key: &str) -> Result<i64, rusqlite::Error> {
    let value: Option<String> = db
        .prepare_cached("SELECT value FROM handoff_meta WHERE name = 'not_sent ' || ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    Ok(value.and_then(|text| text.parse().ok()).unwrap_or(0))
}

fn parse_mark(value: &str) -> Option<SteadyMark> {
    let mut parts = value.splitn(4, ' ');
    let wall = Timestamp::from_millis(parts.next()?.parse().ok()?);
    let steady = Timestamp::from_millis(parts.next()?.parse().ok()?);
    let boot_time = Duration::from_millis(parts.next()?.parse().ok()?);
    Some(SteadyMark { wall, steady, boot_time, boot_id: parts.next()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_as_it_was_written_and_takes_the_place_of_no_later_one() {
        let mark = |wall| SteadyMark {
            steady: Timestamp::from_millis(70),
            wall: Timestamp::from_millis(wall),
            boot_time: Duration::from_millis(5),
            boot_id: "this-boot".to_owned(),
        };
        let mut db = Connection::open_in_memory().unwrap();
        crate::schema::migrate(&mut db, Timestamp::from_millis(0)).unwrap();
        write_mark(&db, &mark(60)).unwrap();
        assert_eq!(read_mark(&db).unwrap(), Some(mark(60)));
        assert_eq!(parse_mark("70 5"), None);
        let older = SteadyMark { boot_time: Duration::from_millis(4), ..mark(50) };
        keep_mark(&db, &older).unwrap();
        assert_eq!(read_mark(&db).unwrap(), Some(mark(60)));
        keep_mark(&db, &SteadyMark { boot_id: "another".to_owned(), ..older.clone() }).unwrap();
        assert_eq!(read_mark(&db).unwrap().map(|mark| mark.wall), Some(older.wall));
    }
}
