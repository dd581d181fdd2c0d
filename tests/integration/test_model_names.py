"""Every client learns the names of models from the OpenAPI document."""

from gpt2core.spec.models import model_names
from gpt2core.spec.networks import NETWORKS


def test_the_document_lists_every_networks_models(empty_api):
    document = empty_api.http.get("/openapi.json").json()
    listed = document["components"]["schemas"]["RunSpec"]["properties"]["model"]["examples"]
    assert listed == list(model_names())
    assert {"tiny", "gpt2-124m", "lstm-tiny", "lstm-deep"} <= set(listed)
    assert set(NETWORKS) <= set(listed)
