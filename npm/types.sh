#!/bin/sh
# Checks the dashboard's types against the API's: build/ui/api.d.ts is generated from the OpenAPI document. Then checks
# that the modules, which the server sends without comments and white space, are otherwise those of server/ui.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build/ui
"${1:-python3}" -c "
import json
from taskloom.server.main import create_app
from taskloom.server.settings import Settings
print(json.dumps(create_app(Settings(database_url='sqlite:///never-opened.db')).openapi()))" > build/ui/openapi.json
npm/node_modules/.bin/openapi-typescript build/ui/openapi.json -o build/ui/api.d.ts >/dev/null
npm/node_modules/.bin/tsc -p npm/tsconfig.json
rm -rf build/ui/sent
"${1:-python3}" -c "
from pathlib import Path
from taskloom.server.read.dashboard import files
for name, file in files.read().by_path.items():
    if name.endswith('.js'):
        path = Path('build/ui/sent', name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.plain)"
node npm/comments.mjs build/ui/sent
