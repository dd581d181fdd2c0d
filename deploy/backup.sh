#!/usr/bin/env bash
# Back up Taskloom's database, then its artifacts, while the server runs: backup.sh FOLDER [KEEP]
# The backup is FOLDER/YYYYMMDDTHHMMSSZ. It has that name only once it is complete; the exit status is 0 only then.
# Afterwards all but the latest KEEP backups (default 14) are deleted. Settings are those of the server:
#   TASKLOOM_DATABASE_URL   default sqlite:///taskloom.db
#   TASKLOOM_ARTIFACT_ROOT  default FILE.artifacts beside SQLite's FILE; required with PostgreSQL
# It takes Python 3.8 or later (PYTHON, default python3) and, with PostgreSQL, pg_dump and pg_restore, which must not be
# older than the database server.
set -euo pipefail
umask 077  # a backup contains the hashes of keys and the secrets of webhooks

fail() {
    echo "backup.sh: $*" >&2
    exit 1
}

python=${PYTHON:-python3}
url=${TASKLOOM_DATABASE_URL:-sqlite:///taskloom.db}
keep=${2:-14}
if [ $# -lt 1 ] || [ $# -gt 2 ] || ! [[ $keep =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: backup.sh FOLDER [KEEP], where KEEP is 1 or more" >&2
    exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
target=$folder/$(date -u +%Y%m%dT%H%M%SZ)
[ ! -e "$target" ] || fail "$target exists"
partial=$(mktemp -d "$folder/.partial-XXXXXX")
trap 'rm -rf "$partial"' EXIT

case $url in
sqlite:///*)
    file=${url#sqlite:///}
    file=${file%%\?*}
    [ -f "$file" ] || fail "$file: no such database"
    artifacts=${TASKLOOM_ARTIFACT_ROOT:-$file.artifacts}
    # Not cp: the last commits are in FILE-wal.
    "$python" -I - "$file" "$partial/taskloom.db" <<'PYTHON'
import contextlib, sqlite3, sys
with contextlib.closing(sqlite3.connect(sys.argv[1])) as given, contextlib.closing(sqlite3.connect(sys.argv[2])) as copy:
    try:  # not VACUUM INTO, which the SQLite of Python 3.8 on RHEL 8 does not know
        given.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE").close()
        found = copy.execute("PRAGMA quick_check").fetchone()[0]
    except sqlite3.Error as error:
        sys.exit(f"backup.sh: {sys.argv[1]}: {error}")
if found != "ok":
    sys.exit(f"backup.sh: the copy is damaged: {found}")
PYTHON
    ;;
postgresql*://*)
    artifacts=${TASKLOOM_ARTIFACT_ROOT:?is required with PostgreSQL: the folder of artifacts}
    # Other users see the arguments of pg_dump, so the URL, which may contain a password, is not one of them.
    service=$partial/service
    TASKLOOM_DATABASE_URL=$url "$python" -I - > "$service" <<'PYTHON'
import os, re, sys
from urllib.parse import parse_qsl, unquote
url = re.compile(  # as SQLAlchemy reads it
    r"[^:]+://(?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?"
    r"(?:\[(?P<six>[^/?]+)\]|(?P<host>[^/:?]*))(?::(?P<port>\d*))?(?:/(?P<dbname>[^?]*))?(?:\?(?P<query>.*))?"
)
found = url.fullmatch(os.environ["TASKLOOM_DATABASE_URL"])
if found is None:
    sys.exit("backup.sh: TASKLOOM_DATABASE_URL is no database URL")
values = {name: unquote(value) for name, value in found.groupdict().items() if value and name != "query"}
values["host"] = values.pop("six", None) or values.get("host")
print("[taskloom]")
for name, value in {**values, **dict(parse_qsl(found["query"] or ""))}.items():
    if value:
        print(f"{name}={value}")
PYTHON
    # A pooler would keep the settings of pg_dump, such as an empty search path, on connections of the server. Poolers
    # refuse this option, which changes nothing.
    PGOPTIONS="${PGOPTIONS:-} -c geqo=on" PGSERVICEFILE=$service pg_dump --format=custom --file="$partial/taskloom.dump" --dbname="service=taskloom" ||
        fail "pg_dump failed; if it reached a pooler, give a URL of PostgreSQL itself"
    rm "$service"
    pg_restore --list "$partial/taskloom.dump" > /dev/null
    ;;
*)
    fail "TASKLOOM_DATABASE_URL is neither sqlite:///FILE nor postgresql://..."
    ;;
esac

# After the database: a file is stored before the database names it.
if [ -d "$artifacts" ]; then
    cp -a "$artifacts" "$partial/artifacts"
elif [ -n "${TASKLOOM_ARTIFACT_ROOT:-}" ]; then
    fail "$artifacts: no such folder of artifacts"
fi
sync -f "$partial"
mv -T "$partial" "$target"
sync "$folder"

mapfile -t kept < <(find "$folder" -mindepth 1 -maxdepth 1 -type d -name '2*T*Z' | sort)
for old in "${kept[@]:0:${#kept[@]}-keep > 0 ? ${#kept[@]}-keep : 0}"; do
    rm -rf "$old"
done
echo "$target"
