"""Nothing leaves the page, nothing foreign runs in it, and hostile text is data."""

from __future__ import annotations

import json

import pytest

from tests.explore.actions import VIEWS, enter, press, text_of

HOSTILE = "<img src=x onerror=alert(1)><script>document.title='bad'</script>\u202e\x00' onx=\"1"
SCRIPT = """{
  const script = document.createElement('script');
  script.textContent = 'window.bad = 1';
  const markup = document.createElement('div');
  markup.innerHTML = '<img src=x onerror="window.bad = 1">';
  document.body.append(script, markup);
}"""


@pytest.mark.parametrize("view", VIEWS)
def test_no_complaints_and_no_requests(visit, view):
    browser = visit(view)
    press(browser, "Copy link")
    requests = [e for e in browser.events if e.get("method") == "Network.requestWillBeSent"]
    asked = [event["params"]["request"]["url"] for event in requests]
    assert asked  # the page itself
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:"))] == []
    assert browser.complaints == []


def test_the_policy_stops_requests_and_foreign_scripts(visit):
    browser = visit()
    out = "fetch('http://127.0.0.1:9/').then(() => 'went out', () => 'refused')"
    assert browser.run(out) == "refused"
    browser.run(SCRIPT)
    browser.settle()
    assert browser.run("window.bad === undefined")
    assert any("Content Security Policy" in line for line in browser.complaints)


def test_hostile_text_is_data(visit):
    browser = visit("attention")
    enter(browser, "textarea", HOSTILE)
    tags = "[...document.querySelectorAll('#main *')].map((node) => node.tagName.toLowerCase())"
    assert not {"img", "script", "iframe"} & set(browser.run(tags))
    assert browser.run("document.title").startswith("taut explore")
    assert "<img" in text_of(browser, ".python")
    assert "\u202e" not in text_of(browser, ".tokens")
    assert browser.complaints == []


ADDRESSES = [
    "softmax?x=nan,1&t=-3&p=0&size=abc&direction=,,&seed=1e99",
    "softmax?x=" + ",".join(["1"] * 500),
    "attention?text=" + "%3Cscript%3E" * 100 + "&layer=99&head=-4&query=7777&key=1e9&t=1e999",
    "attention?text=&flip=1&swap=9999,%3Cb%3E",
    "games?a=1,2;3&t=0",
    "games?a=;;;&t=x",
    "<img src=x onerror=alert(1)>",
    "%00%ff%",
    # Extremes that are allowed.
    "softmax?x=50,-50&t=0.05&size=100",
    "softmax?x=50,-50,49.9999999&t=0.05&size=1e-6&p=1.0000001",
    "softmax?x=0,0,0,0,0,0,0,0,0,0,0,0&t=20&p=99.99",
    "attention?text=a&flip=1&push=20&t=0.05&everywhere=1",
    "games?a=1000,-1000;-1000,1000&t=0.01",
    "games?a=7&t=100",
    "games?a=1,1;1,1&t=1",
]


def looks_whole(browser) -> bool:
    cards = browser.run("document.querySelectorAll('.panel:not([hidden]) .card').length")
    return cards >= 4 and "NaN" not in browser.run("document.body.innerText")


@pytest.mark.parametrize("address", ADDRESSES[:3])
def test_hostile_addresses_open_the_page(visit, address):
    browser = visit(address)
    assert browser.complaints == []
    assert looks_whole(browser)


def test_an_open_page_takes_hostile_addresses(visit):
    browser = visit()
    for address in ADDRESSES:
        browser.run(f"location.hash = {json.dumps(address)}")
        browser.settle()
        assert browser.complaints == [], address
        assert looks_whole(browser), address
