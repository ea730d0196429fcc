"""Secrets of the web by their place: addresses, hooks of chats, headers."""

from __future__ import annotations

from rlhfdoctor.privacy.form import Place

PLACES = (
    # addresses
    Place("://", r"(?<=://)([^\s/\"'<>?@]{0,256}:?[^\s/\"'<>?]{1,512})(?=@)"),
    Place(
        "://",
        r"(?<=://)([^\s/:@\"'<>]{0,256}:(?!\d{1,5}(?:/|$))[^\s\"'<>]{1,256})(?=@[\w.-]{1,200}(?::\d{1,5})?(?:"
        r"[/\s\"'?,;)]|$))",
    ),
    Place("@", r"(?<![\w./@:-])[\w.-]{1,64}:([^\s:@/\"'<>,]{4,200})@(?!sha\d)(?=[\w.-]{1,200}:\d{2,5}(?![\w.]))"),
    Place("jdbc:", r"(?i)jdbc:oracle:\w{1,20}:[^\s/]{1,100}/([^\s@]{1,200})@"),
    Place(
        "? &",
        r"(?i)(?<=[?&#])(?:sig|signature|key|\w{0,30}token|x-amz-signature|x-amz-credential"
        r"|\w{0,20}accesskeyid|api_?key"
        r"|q-ak|q-signature|password|passwd|pwd|secret|client_secret)=([^&\s\"'<>]{4,4096})",
    ),
    Place("-signature=", r"(?i)(?<![\w-])(?:x-\w{2,5}|q)-signature=([^&\s\"'<>]{4,4096})"),
    Place("#access_token=", r"(?i)#access_token=([^&\s\"'<>]+)"),
    Place("code=", r"(?<=[?&])code=([\w./~-]{16,})"),
    # hooks
    Place("hooks.slack.com", r"hooks\.slack\.com/\w{1,20}/([^\s\"'<>]+)"),
    Place("/bot/v2/hook", r"/bot/v2/hook/([^\s\"'<>]+)"),
    Place("/webhook", r"/webhooks?/\d{15,22}/([\w-]{30,})"),
    Place("webhook.office.com outlook.office", r"office\.com/webhook\w{0,4}/([^\s\"'<>]{30,})"),
    Place(".ftqq.com", r"ftqq\.com/([\w-]{16,})(?=\.send)"),
    Place("api.day.app", r"api\.day\.app/([\w-]{16,})"),
    Place("maker.ifttt.com", r"/with/key/([\w-]{16,})"),
    Place("hooks.zapier.com", r"hooks/catch/([^\s\"'<>]{8,})"),
    Place("/hooks/", r"https?://[\w.:-]{1,200}/hooks/([a-z0-9]{20,})"),
    Place("hc-ping.com healthchecks", r"(?:hc-ping\.com|/ping)/([0-9a-f-]{30,40})"),
    Place("ntfy", r"(?i)\bntfy\.sh/([\w-]{16,})"),
    Place("ingest. sentry", r"(?<=://)([0-9a-f]{32})(?=@)"),
    # headers
    Place("aws4-hmac", r"(?i)credential=([^\s,/]{6,64})[^\n]{0,400}?signature=([0-9a-f]{32,128})"),
    Place("digest", r"(?i)\bdigest\b[^\n]{0,400}?\bresponse=\\{0,4}\"([0-9a-f]{16,64})"),
    Place(
        "authorization",
        r"(?i)(?<![A-Za-z])authorization\\{0,4}[\"']?\s{0,4}(?:[:=]|,)\s{0,4}b?\\{0,4}[\"']?"
        r"(?:(?:bearer|basic|token|digest|apikey|oss|aws|cos|ntlm|negotiate)(?:\s{1,8}"
        r"|%20))([^\s\"',}]{6,4096})",
    ),
    Place(
        "authorization",
        r"(?i)(?<![A-Za-z])authorization\\{0,4}[\"']?\s{0,4}[:=]\s{0,4}b?\\{0,4}[\"']?(?!(?:bearer|basic"
        r"|token|digest|apikey|oss|aws4|\[secret)\b)"
        r"([^\s\"',}]{6,4096})",
    ),
    Place("bearer", r"(?i)\bbearer(?:\s{1,8}|:\s{0,4})(?=[\w.~+/=-]{0,200}\d)([\w.~+/=-]{8,4096})"),
    Place(
        "x- api-key private-token -key: subscription",
        r"(?i)(?<![\w-])(?:x-[\w-]{0,40}(?:key|token|secret|auth)|(?:api|private|job|deploy|access"
        r"|subscription|auth)-(?:key|token)"
        r"|ocp-apim-subscription-key)\\{0,4}[\"']?\s{0,4}[:=]\s{0,4}\\{0,4}[\"']?([^\s\"',}]{6,4096})",
    ),
    Place("cookie:", r"(?i)(?<![A-Za-z])(?:set-)?cookie:\s{0,4}([^\n\"']{4,8000})"),
    Place(
        "cookie",
        r"(?i)(?<![A-Za-z])(?:set-)?cookie\\{0,4}[\"']\s{0,4}[:,]\s{0,4}b?\\{0,4}[\"']([^\"'\\\n]{4,8000})",
    ),
    Place("cookie", r"(?i)cookies\s{0,4}[=:]\s{0,4}(\{[^}\n]{4,4000}\})"),
)
