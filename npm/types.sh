#!/bin/sh
# Checks the dashboard's types against the API's: build/ui/api.d.ts is generated from the OpenAPI document.
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
