"""Secrets as configurations in Python, TOML, XML and Chinese write them."""

from __future__ import annotations

import pytest

from rlhfdoctor.privacy.secrets import cut_secrets

VALUE = "hunter2Secret99"


@pytest.mark.parametrize(
    "text",
    [
        f"api_key: str = '{VALUE}'",
        f'hf_token: str | None = "{VALUE}"',
        f"wandb_api_key: Optional[str] = '{VALUE}'",
        f"api_key=SecretStr('{VALUE}')",
        f"password = '''{VALUE}'''",
        f'password = """{VALUE}"""',
        f'<add key="Password" value="{VALUE}"/>',
        f"password＝{VALUE}",
        f"密码＝{VALUE}",
    ],
)
def test_form(text: str) -> None:
    """A third attack: none of these is kept."""
    assert VALUE not in cut_secrets(text)


@pytest.mark.parametrize("text", ["input_key: str = 'text'", 'pad_token: str = "<pad>"', "api_key: str = None", "tokenizer: str = 'Qwen/Qwen2-7B'"])
def test_setting(text: str) -> None:
    """What only sounds alike stays."""
    assert cut_secrets(text) == text
