import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial, wraps
from typing import Any

import pytest

from svc_async.errors import InvalidArgument
from svc_async.events.models import Event, UnknownEvent
from svc_async.events.router import EventRouter
from tests.support.errors import has


def build_event(event_type: str) -> Event:
    return UnknownEvent(key="k", event_type=event_type, raw={})


@pytest.mark.parametrize(
    ("pattern", "fits", "differs"),
    [
        ("post.create", ["post.create"], ["post.delete", "post.create.x", "xpost.create", "post"]),
        ("post.*", ["post.create", "post.delete", "post.edit.text"], ["posts.create", "post", "dm.sent"]),
        ("profile.update.*", ["profile.update.bio"], ["profile.other"]),
        ("*", ["post.create", "unknown", "account_activity", ""], []),
        ("unknown", ["unknown"], ["post.create"]),
    ],
)
def test_a_pattern_is_a_type_or_a_prefix_or_everything(pattern: str, fits: list[str], differs: list[str]) -> None:
    router = EventRouter()
    router.on(pattern)(print)

    assert all(router.handlers(name) for name in fits)
    assert not any(router.handlers(name) for name in differs)


@pytest.mark.parametrize("pattern", ["", "post.", "po*", "*.create", "post.*.x", "post create", "**", ".*"])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="event_type")):
        EventRouter().on(pattern)


@pytest.mark.parametrize("pattern", ["post.create ", " *", "post.*\n"])
def test_a_pattern_with_white_space_around_it_is_refused_by_that_rule(pattern: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="event_type")):
        EventRouter().on(pattern)


@pytest.mark.parametrize("first", ["post.*", "post.delete"])
async def test_a_function_is_called_once_for_each_of_its_patterns(first: str) -> None:
    router, calls = EventRouter(), list[str]()

    @router.on(first)
    @router.on("post.delete")
    def handle(event: Event, _: object) -> None:
        calls.append(event.event_type)

    assert await router.dispatch(build_event("post.delete")) == 2
    assert calls == ["post.delete"] * 2


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("post", "post.*"),
        ("profile", "profile.*"),
        ("post_create", "post.create"),
        ("Misfits", "misfit"),
        ("like", "like.*"),
        ("x", "post.create"),
    ],
)
def test_a_word_that_no_type_can_be_is_refused_with_what_was_meant(word: str, advice: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="event_type")) as caught:
        EventRouter().on(word)
    assert advice in str(caught.value)


@pytest.mark.parametrize("event_type", ["post.to_come", "wholly.new.type", "wholly.*", "replay_job_status", "unknown"])
def test_types_that_the_platform_may_add_and_words_of_this_sdk_are_patterns(event_type: str) -> None:
    router = EventRouter()
    router.on(event_type)(print)
    assert router.handlers(event_type.replace("*", "x")) == (print,)


@pytest.mark.rule("EV-02")
def test_a_deprecated_name_is_refused_with_the_current_one() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="event_type")) as caught:
        EventRouter().on("PostCreate")
    assert "post.create" in str(caught.value)


class Consumer:
    async def __call__(self, event: Event, context: str) -> None:
        """Do nothing."""

    def handle(self, event: Event, *, context: str) -> None:
        """Do nothing."""


class Generator:
    async def __call__(self, _: Event, __: str) -> AsyncIterator[None]:
        yield

    def handle(self, _: Event, __: str) -> Iterator[None]:
        yield


def generate(_: Event, __: str) -> Iterator[None]:
    yield


async def generate_later(_: Event, __: str) -> AsyncIterator[None]:
    yield


def return_generator(event: Event, context: str) -> object:
    return generate(event, context)


async def return_asynchronous_generator(event: Event, context: str) -> object:
    return generate_later(event, context)


def handle_for(shop: str, event: Event, context: str) -> None:
    """Do nothing."""


@wraps(handle_for)
def handle_for_books(*arguments: Any) -> None:
    handle_for("books", *arguments)


@pytest.mark.parametrize(
    "handler",
    [
        Consumer(),
        Consumer().__call__,
        partial(handle_for, "books"),
        handle_for_books,
        dict,
        print,
        lambda *_: None,
        lambda _, __=None: _,
    ],
)
def test_whatever_takes_an_event_and_its_context_is_a_handler(handler: Any) -> None:
    router = EventRouter()
    assert router.on("post.create")(handler) is handler
    assert router.handlers("post.create") == (handler,)


@pytest.mark.parametrize(
    "handler",
    [
        "x",
        None,
        Consumer().handle,
        handle_for,
        partial(handle_for, "books", context=""),
        lambda _: None,
        lambda: None,
        generate,
        generate_later,
        Generator(),
        Generator().handle,
        partial(generate_later),
        partial(Generator()),
    ],
)
def test_what_cannot_be_called_with_an_event_and_its_context_is_refused(handler: Any) -> None:
    router = EventRouter()
    with pytest.raises(InvalidArgument, check=has(parameter="handler")):
        router.on("post.create")(handler)
    assert router.handlers("post.create") == ()


@pytest.mark.parametrize("handler", [return_generator, return_asynchronous_generator])
async def test_a_handler_that_returns_a_generator_fails(handler: Any) -> None:
    router = EventRouter()
    router.on("*")(handler)
    with pytest.raises(InvalidArgument, check=has(parameter="handler")):
        await router.dispatch(build_event("post.create"), "c")


async def test_handlers_run_one_after_another_in_the_order_of_registration() -> None:
    router, calls = EventRouter(), list[Any]()

    @router.on("*")
    async def first(event: Event, context: str) -> None:
        await asyncio.sleep(0)
        calls.append(("first", event.event_type, context))

    @router.on("post.create")
    @router.on("dm.*")
    def second(event: Event, context: str) -> None:
        calls.append(("second", event.event_type, context))

    assert await router.dispatch(build_event("post.create"), "c") == 2
    assert await router.dispatch(build_event("spaces.end"), "c") == 1
    assert calls == [("first", "post.create", "c"), ("second", "post.create", "c"), ("first", "spaces.end", "c")]


async def test_the_first_handler_that_raises_ends_the_dispatch() -> None:
    router, calls = EventRouter(), list[str]()

    @router.on("*")
    def fails(_: Event, __: object) -> None:
        raise LookupError

    router.on("*")(lambda each, _: calls.append(each.key))
    with pytest.raises(LookupError):
        await router.dispatch(build_event("post.create"))

    assert calls == []


@pytest.mark.parametrize(
    ("patterns", "called"),
    [
        (["post.create", "misfit", "*"], ["misfit", "*"]),
        (["post.create", "post.*"], ["post.create", "post.*"]),
        (["misfit"], ["misfit"]),
    ],
)
async def test_an_event_that_does_not_fit_goes_to_its_own_handlers(patterns: list[str], called: list[str]) -> None:
    router, seen = EventRouter(), list[str]()
    for pattern in patterns:
        router.on(pattern)(lambda _, __, pattern=pattern: seen.append(pattern))
    misfit = UnknownEvent(key="k", event_type="post.create", raw={}, problem="EventPost.id is missing")

    assert await router.dispatch(misfit) == len(called)
    assert seen == called
    await router.dispatch(build_event("post.create"))
    assert "misfit" not in seen[len(called) :]


async def test_an_event_without_handlers_is_dispatched_to_none() -> None:
    assert await EventRouter().dispatch(build_event("post.create")) == 0


@pytest.mark.parametrize("wrong", ["post.create", None, {"event_type": "post.create"}, b"{}"])
async def test_what_is_no_event_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="event")):
        await EventRouter().dispatch(wrong)
