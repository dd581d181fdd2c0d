"""/sign-in: where people sign in at their OpenID Connect provider, and out again. access/oidc has the rules."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from fastapi import Request, Response
from fastapi.responses import HTMLResponse

from taskloom.server.access.scopes import EVERYBODY
from taskloom.server.context import Context, Ctx
from taskloom.server.errors import Forbidden, NotFound, NotSignedOn
from taskloom.server.read.pages.html import page
from taskloom.server.routing import Router

if TYPE_CHECKING:
    from taskloom.server.access.oidc.sign_on import SignOn

router = Router("/sign-in", tag="sign_in", below="", any_query=True)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # otherwise browsers hide from us that the form is ours
}


@router.get("", EVERYBODY, errors=(NotFound,), include_in_schema=False, response_class=HTMLResponse)
async def show(context: Ctx, request: Request) -> HTMLResponse:
    """Show who has signed in, and how to sign in or out."""
    sign_on, root = _of(context), context.settings.root_path
    issuer, session = escape(sign_on.issuer), sign_on.session(request)
    if session is None:
        return _page(
            f'<h1>Sign in</h1><p><a href="{root}/sign-in/start">Sign in at {issuer}</a></p>'
            f'<p><a href="{root}/ui/">To the dashboard, with a key</a></p>'
        )
    until = datetime.fromtimestamp(session.until, UTC)
    return _page(
        f"<h1>Signed in as {escape(session.user)}</h1><p>The session ends at {until:%H:%M} UTC. That at {issuer} is "
        f'another one, and stays.</p><p><a href="{root}/ui/">To the dashboard</a></p>'
        f'<form method="post" action="{root}/sign-in/out"><button>Sign out</button></form>'
    )


@router.get("/start", EVERYBODY, errors=(NotFound,), include_in_schema=False)
async def start(context: Ctx) -> Response:
    """Lead to the provider's page."""
    answer = Response(status_code=303)
    try:
        answer.headers["Location"] = await _of(context).begin(answer)
    except NotSignedOn as error:
        return _refused(context, error)
    return answer


@router.get("/callback", EVERYBODY, errors=(NotFound,), include_in_schema=False)
async def callback(context: Ctx, request: Request) -> Response:
    """Sign in the user whom the provider leads back, and lead to the dashboard."""
    sign_on = _of(context)
    answer = _leads_to(f"{context.settings.root_path}/ui/")
    try:
        await sign_on.finish(request, answer)
    except NotSignedOn as error:
        answer = _refused(context, error)
    sign_on.give_up(answer)
    return answer


@router.post("/out", EVERYBODY, errors=(NotFound,), include_in_schema=False)
async def out(context: Ctx, request: Request) -> Response:
    """End the session of this browser."""
    sign_on = _of(context)
    if not sign_on.is_own_page(request):
        raise Forbidden("sessions end from the page /sign-in", scopes=[])
    answer = _leads_to(f"{context.settings.root_path}/sign-in")
    sign_on.end(answer)
    return answer


def _of(context: Context) -> SignOn:
    """Raises NotFound."""
    if context.sign_on is None:
        raise NotFound("this server signs nobody in: it has no TASKLOOM_OIDC_ISSUER")
    return context.sign_on


def _leads_to(address: str) -> Response:
    return Response(status_code=303, headers={"Location": address})


def _refused(context: Context, why: NotSignedOn) -> HTMLResponse:
    again = f'<p><a href="{context.settings.root_path}/sign-in">Try again</a></p>'
    return _page(f"<h1>Not signed in</h1><p>{escape(str(why))}.</p>{again}", why.status)


def _page(body: str, status: int = 200) -> HTMLResponse:
    return HTMLResponse(page("Sign in · Taskloom", body), status, headers=HEADERS)
