"""User code that is checked and never run: a FastAPI application. A marked line is wrong, and must stay an error."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, assert_type

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from jwtlimit_core import AsyncProcessor, Claims, Limit, RateLimitExceeded
from jwtlimit_starlette import RateLimit, RateLimitMiddleware, add_exception_handlers, exempt, get_processor, rate_limit

app = FastAPI(dependencies=[Depends(RateLimit("100/m", name="app"))])
app.add_middleware(RateLimitMiddleware, secret_key="s" * 32, limits=[Limit("api", "1000/m")], issue_rate="5/m")
add_exception_handlers(app)
router = APIRouter(prefix="/v1", dependencies=[Depends(RateLimit("50/m", key="subject"))])


@app.post("/token", dependencies=[Depends(RateLimit("5/m", key="field:user", methods=["POST"]))])
async def token(user: str, processor: Annotated[AsyncProcessor, Depends(get_processor)]) -> dict[str, str]:
    return {"access_token": await processor.create(Claims(sub=user))}


@router.get("/page/{number}")
@rate_limit("5/m", name="page", refund_when=lambda status, headers: status >= 500)
async def page(number: int, request: Request, *, size: int = 10) -> dict[str, int]:
    return {"number": number, "size": size}


@router.get("/plain")
@rate_limit("5/m")
def plain(request: Request) -> str:
    return "plain"


@app.get("/health")
@exempt
def health() -> str:
    return "fine"


@app.exception_handler(RateLimitExceeded)
async def too_many(request: Request, error: RateLimitExceeded) -> JSONResponse:
    return JSONResponse({"wait": error.retry_after, "limit": error.limit}, 429)


app.include_router(router)
endpoint: Callable[[Request], str] = plain
assert_type(health(), str)


async def asks(request: Request) -> None:
    assert_type(await page(1, request, size=2), dict[str, int])
    assert_type(page(1, request), Coroutine[Any, Any, dict[str, int]])  # type: ignore[unused-coroutine]
    assert_type(await RateLimit("5/m")(request), None)
    await page("1", request)  # type: ignore[arg-type]
    await page(1)  # type: ignore[call-arg]


RateLimit(5)  # type: ignore[arg-type]
RateLimit("5/m", costs=2)  # type: ignore[call-arg]
app.add_middleware(RateLimitMiddleware, limit=[])  # type: ignore[call-arg]
