"""The services and models that sessions and handles name, each imported on first use.

A program uses a few of them, and together they take as long to import as aiohttp.
"""

from typing import TYPE_CHECKING

from svc_async.lazy import make_getattr

if TYPE_CHECKING:
    from svc_async.ads.account_apps import AccountApps as AccountApps
    from svc_async.ads.account_history import AccountHistory as AccountHistory
    from svc_async.ads.account_media import AccountMediaItems as AccountMediaItems
    from svc_async.ads.accounts import Accounts as Accounts
    from svc_async.ads.advertiser_business_categories import (
        AdvertiserBusinessCategories as AdvertiserBusinessCategories,
    )
    from svc_async.ads.audience_estimate import ESTIMATE as ESTIMATE
    from svc_async.ads.audience_estimate import AudienceEstimate as AudienceEstimate
    from svc_async.ads.audience_estimate import AudienceOperatorType as AudienceOperatorType
    from svc_async.ads.cards import Cards as Cards
    from svc_async.ads.curated_categories import CuratedCategories as CuratedCategories
    from svc_async.ads.custom_audience_permissions import CustomAudiencePermissions as CustomAudiencePermissions
    from svc_async.ads.custom_audiences import CustomAudience as CustomAudience
    from svc_async.ads.custom_audiences import CustomAudiences as CustomAudiences
    from svc_async.ads.custom_audiences import TargetedAudienceEntry as TargetedAudienceEntry
    from svc_async.ads.do_not_reach_lists import DoNotReachList as DoNotReachList
    from svc_async.ads.do_not_reach_lists import DoNotReachLists as DoNotReachLists
    from svc_async.ads.features import Features as Features
    from svc_async.ads.keyword_insights import KeywordInsightsSearch as KeywordInsightsSearch
    from svc_async.ads.line_item_curated_categories import LineItemCuratedCategories as LineItemCuratedCategories
    from svc_async.ads.line_items import LineItems as LineItems
    from svc_async.ads.media_library import MediaLibrary as MediaLibrary
    from svc_async.ads.placements import Placements as Placements
    from svc_async.ads.poll_cards import PollCards as PollCards
    from svc_async.ads.posts import Posts as Posts
    from svc_async.ads.product_catalogs import ProductCatalogs as ProductCatalogs
    from svc_async.ads.product_sets import ProductSets as ProductSets
    from svc_async.ads.tailored_audience_permissions import TailoredAudiencePermissions as TailoredAudiencePermissions
    from svc_async.ads.video_conversation_cards import VideoConversationCards as VideoConversationCards
    from svc_async.batch.job import ClusterRunner as ClusterRunner
    from svc_async.lists.audience_users import AudienceUsers as AudienceUsers
    from svc_async.lists.do_not_reach_users import DoNotReachUsers as DoNotReachUsers
    from svc_async.lists.products import Products as Products
    from svc_async.platform.activity import Activity as Activity
    from svc_async.platform.filtered_stream import FilteredStream as FilteredStream
    from svc_async.platform.oauth1_flow import OAuth1Flow as OAuth1Flow
    from svc_async.platform.oauth2 import OAuth2 as OAuth2
    from svc_async.platform.webhooks import Webhooks as Webhooks

_HOME_OF = {
    "ESTIMATE": "svc_async.ads.audience_estimate",
    "AccountApps": "svc_async.ads.account_apps",
    "AccountHistory": "svc_async.ads.account_history",
    "AccountMediaItems": "svc_async.ads.account_media",
    "Accounts": "svc_async.ads.accounts",
    "Activity": "svc_async.platform.activity",
    "AdvertiserBusinessCategories": "svc_async.ads.advertiser_business_categories",
    "AudienceEstimate": "svc_async.ads.audience_estimate",
    "AudienceOperatorType": "svc_async.ads.audience_estimate",
    "AudienceUsers": "svc_async.lists.audience_users",
    "Cards": "svc_async.ads.cards",
    "ClusterRunner": "svc_async.batch.job",
    "CuratedCategories": "svc_async.ads.curated_categories",
    "CustomAudience": "svc_async.ads.custom_audiences",
    "CustomAudiencePermissions": "svc_async.ads.custom_audience_permissions",
    "CustomAudiences": "svc_async.ads.custom_audiences",
    "DoNotReachList": "svc_async.ads.do_not_reach_lists",
    "DoNotReachLists": "svc_async.ads.do_not_reach_lists",
    "DoNotReachUsers": "svc_async.lists.do_not_reach_users",
    "Features": "svc_async.ads.features",
    "FilteredStream": "svc_async.platform.filtered_stream",
    "KeywordInsightsSearch": "svc_async.ads.keyword_insights",
    "LineItemCuratedCategories": "svc_async.ads.line_item_curated_categories",
    "LineItems": "svc_async.ads.line_items",
    "MediaLibrary": "svc_async.ads.media_library",
    "OAuth1Flow": "svc_async.platform.oauth1_flow",
    "OAuth2": "svc_async.platform.oauth2",
    "Placements": "svc_async.ads.placements",
    "PollCards": "svc_async.ads.poll_cards",
    "Posts": "svc_async.ads.posts",
    "ProductCatalogs": "svc_async.ads.product_catalogs",
    "Products": "svc_async.lists.products",
    "ProductSets": "svc_async.ads.product_sets",
    "TailoredAudiencePermissions": "svc_async.ads.tailored_audience_permissions",
    "TargetedAudienceEntry": "svc_async.ads.custom_audiences",
    "VideoConversationCards": "svc_async.ads.video_conversation_cards",
    "Webhooks": "svc_async.platform.webhooks",
}


if not TYPE_CHECKING:
    __getattr__ = make_getattr(__name__, globals(), _HOME_OF)
