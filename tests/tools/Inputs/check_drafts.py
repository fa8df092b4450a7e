# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks a file of `ladle bench --drafts`: which numbers of drafts it has, that
rates follow from times, and the lines that sum them up."""

import argparse
import json


def rate_at(times: dict, accepted: float) -> float:
    """Tokens a second, by the straight lines through the times that are there."""
    known = sorted(times)
    low = max(each for each in known if each <= accepted)
    high = min(each for each in known if each >= accepted)
    part = (accepted - low) / (high - low) if high > low else 0
    return 1e6 * (accepted + 1) / (times[low] + part * (times[high] - times[low]))


def check_summary(results: list, text: str) -> None:
    lines = text.split("tokens a second and row")[1].splitlines()[3:]
    for result, line in zip(results, lines, strict=False):
        most = result["drafts"]
        times = {
            each["accepted"]: each["us_a_step"]
            for each in result["figures"]
            if "accepted" in each and each["tree"] == "chain"
        }
        averages = [sum(p**i for i in range(1, most + 1)) for p in (0.5, 0.7, 0.9)]
        wanted = [rate_at(times, each) for each in [0, *averages, most]]
        got = [float(each) for each in line.split()[6:11]]
        assert all(abs(a / b - 1) < 1e-2 for a, b in zip(got, wanted, strict=True)), line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--drafts", required=True)
    parser.add_argument("--summary")
    options = parser.parse_args()
    with open(options.file) as file:
        document = json.load(file)
    assert document["schema"] == "ladle-bench-drafts-2", document["schema"]
    wanted = [int(each) for each in options.drafts.split(",")]
    assert [result["drafts"] for result in document["results"]] == wanted
    for result in document["results"]:
        assert result["kernels"] and document["runs"][result["run"]]["driver"]
        cycles = [each for each in result["figures"] if "accepted" in each]
        chains = [each["accepted"] for each in cycles if each["tree"] == "chain"]
        most = result["drafts"]
        assert chains == sorted({most, most // 2, 0}, reverse=True), chains
        for figure in result["figures"]:
            assert figure["us_a_step"] > 0 and figure["limit_us"] > 0, figure
            assert len(figure["samples_us"]) > 0, figure
        for figure in cycles:
            rate = 1e6 * (figure["accepted"] + 1) / figure["us_a_step"]
            # The time is rounded to a nanosecond.
            assert abs(figure["tokens_per_s_a_row"] / rate - 1) < 1e-2, figure
    if options.summary:
        with open(options.summary) as file:
            check_summary(document["results"], file.read())


if __name__ == "__main__":
    main()
