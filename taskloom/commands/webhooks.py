"""`taskloom webhooks`: Create, list and delete webhooks, and list their deliveries."""

from __future__ import annotations

from typing import get_args

import click

from taskloom import tables
from taskloom.commands.output import connect, json_option, limit_option, print_items, print_json, server_option
from taskloom.contract.webhooks import EventName, WebhookRequest


@click.group()
def webhooks() -> None:
    """Create, list and delete webhooks, and list their deliveries."""


@webhooks.command()
@click.argument("url")
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice(get_args(EventName)),
    help="only this event; may be repeated  [all]",
)
@server_option
@json_option
def create(url: str, events: tuple[EventName, ...], server: str, as_json: bool) -> None:
    """Send verdicts and alerts to URL. Prints once the secret that signs the messages."""
    request = WebhookRequest.model_construct(url=url, events=list(events or get_args(EventName)))
    with connect(server) as client:
        made = client.create_webhook(request)
    if as_json:
        print_json(made)
    else:
        click.echo(f"webhook {made.id}; its messages are signed with: {made.secret}")


@webhooks.command("list")
@limit_option
@server_option
@json_option
def list_webhooks(limit: int, server: str, as_json: bool) -> None:
    """List your webhooks without their secrets; an admin key lists all."""
    with connect(server) as client:
        print_items(client.webhooks(), limit, tables.webhooks, as_json)


@webhooks.command()
@click.argument("webhook_id", metavar="ID", type=int)
@server_option
@json_option
def delete(webhook_id: int, server: str, as_json: bool) -> None:
    """Delete a webhook; nothing more is sent to it."""
    with connect(server) as client:
        client.delete_webhook(webhook_id)
    if as_json:
        print_json({"id": webhook_id, "deleted": True})
    else:
        click.echo(f"webhook {webhook_id} is deleted")


@webhooks.command()
@click.argument("webhook_id", metavar="ID", type=int)
@limit_option
@server_option
@json_option
def deliveries(webhook_id: int, limit: int, server: str, as_json: bool) -> None:
    """List the deliveries of a webhook, newest first: delivered, waiting or given-up."""
    with connect(server) as client:
        print_items(client.deliveries(webhook_id), limit, tables.deliveries, as_json)
