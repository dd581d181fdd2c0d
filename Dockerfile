# One image for server and worker; docker-compose.yml selects which.
FROM python:3.11-slim

WORKDIR /opt/taskloom
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY gpt2core gpt2core
COPY contract contract
COPY server server
COPY worker worker
COPY provisioner provisioner
COPY analysis analysis
COPY taskloom taskloom
COPY migrations migrations
# The commit for the version, since the image has no .git: --build-arg COMMIT=$(git rev-parse HEAD)
ARG COMMIT=
RUN TASKLOOM_COMMIT=$COMMIT pip install --no-cache-dir -c constraints.txt -e '.[server,worker,postgres,oidc]' \
    && useradd --create-home taskloom \
    && mkdir -p /var/lib/taskloom/artifacts \
    && chown -R taskloom /var/lib/taskloom

USER taskloom
ENV TASKLOOM_CACHE_DIR=/var/lib/taskloom/cache \
    TASKLOOM_SPOOL=/var/lib/taskloom/spool
ENTRYPOINT ["taskloom"]
