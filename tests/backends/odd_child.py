"""A child for `EngineProcess` that answers, fails, hangs, dies or leaves a process behind, as it is asked."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

from harness.backends.vllm.process import end_group, end_with_parent


def main() -> None:
    print("the engine says hello", flush=True)
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rw") as stream:
        end_with_parent(channel)
        for line in stream:
            request = json.loads(line)
            if request["do"] == "die":
                print("last words", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            if request["do"] == "exit":
                sys.exit(3)
            if request["do"] == "hang":
                time.sleep(600)
            answer = {"pid": os.getpid(), "mark": os.environ.get("MARK")}
            if request["do"] == "fail":
                answer = {"error": "ValueError: no such thing", "traceback": "..."}
            if request["do"] == "spawn":
                answer["worker"] = subprocess.Popen(["sleep", "600"]).pid
            if request["do"] == "long":
                answer["text"] = "x" * 300_000
            stream.write(json.dumps(answer) + "\n")
            stream.flush()
            if request["do"] == "close":
                break
    end_group()


if __name__ == "__main__":
    main()
