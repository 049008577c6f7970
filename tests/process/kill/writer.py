"""An application in another language that records under load, until it is killed.

Arguments: the database, a name that no other writer has, a seed, and operation
types with a receiver of the same name. It says what it does on standard output,
one line each: "tried KEY" before the transaction, and after it, once it has been
told so, "committed KEY" or "rolled_back KEY".
"""

import json
import random
import sqlite3
import sys
import time

path, name, seed, *types = sys.argv[1:]
chance = random.Random(f"{name} {seed}")
db = sqlite3.connect(path, timeout=60, isolation_level=None)
db.execute("PRAGMA synchronous = FULL")
db.execute("PRAGMA wal_autocheckpoint = 0")


def record(key, receiver, case):
    payload = json.dumps({"title": f"  Call about {case} ", "case_id": case})
    return db.execute(
        "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)"
        " VALUES (?, ?, ?, 'ann')",
        [key, receiver, payload],
    ).rowcount


def say(word, keys):
    sys.stdout.write("".join(f"{word} {key}\n" for key, _, _ in keys))
    sys.stdout.flush()


committed = []
made = 0
while True:
    fresh = []
    for _ in range(chance.randint(1, 4)):
        made += 1
        kind, case = chance.choice(types), f"{name}-{made}"
        fresh.append((f"harbor:{kind}:v1:{case}", kind, case))
    say("tried", fresh)
    db.execute("BEGIN IMMEDIATE")
    for row in fresh:
        db.execute("INSERT INTO approved_here (operation_key) VALUES (?)", [row[0]])
        assert record(*row) == 1, row
    if committed and chance.random() < 0.2:
        # The same once more changes nothing, wherever the operation stands by now.
        assert record(*chance.choice(committed)) == 0
    if chance.random() < 0.1:
        db.execute("ROLLBACK")
        say("rolled_back", fresh)
    else:
        db.execute("COMMIT")
        say("committed", fresh)
        committed += fresh
    time.sleep(chance.uniform(0, 0.1))
