"""An application in another language: runs the statements that it is told.

Reads one JSON object a line, {"sql": text, "params": [...]}, and answers each
with one line. A blob is written as {"blob": "hex"}, both ways.
"""

import json
import sqlite3
import sys


def into(value):
    return bytes.fromhex(value["blob"]) if isinstance(value, dict) else value


def out(value):
    return {"blob": value.hex()} if isinstance(value, bytes) else value


db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
# No test here is about power cuts, and a disk that syncs is slow.
db.execute("PRAGMA synchronous = OFF")
print(json.dumps({"ready": sqlite3.sqlite_version}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    try:
        cursor = db.execute(asked["sql"], [into(value) for value in asked["params"]])
        rows = [[out(value) for value in row] for row in cursor.fetchall()]
        answer = {"rows": rows, "changed": cursor.rowcount}
    except (sqlite3.Error, sqlite3.Warning) as error:
        answer = {"error": str(error), "class": type(error).__name__}
    answer["in_transaction"] = db.in_transaction
    print(json.dumps(answer), flush=True)
