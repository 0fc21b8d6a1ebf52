# SPDX-License-Identifier: Apache-2.0
from django.urls import path

from nova_dedup_migrate_dashboard.drains import views

_SERVER = '<uuid:id>/servers/<uuid:server>/'

urlpatterns = [
    path('', views.IndexView.as_view(), name='index'),
    path('new', views.NewView.as_view(), name='new'),
    path('check/<uuid:id>/', views.CheckView.as_view(), name='check'),
    path('check/<uuid:id>/start', views.StartView.as_view(), name='start'),
    path('<uuid:id>/', views.DetailView.as_view(), name='detail'),
    path('<uuid:id>/cancel', views.CancelView.as_view(), name='cancel'),
    path('<uuid:id>/cancel/<slug:fate>', views.CancelActionView.as_view(),
         name='cancel_action'),
    path('<uuid:id>/action/<slug:action>', views.DrainActionView.as_view(),
         name='action'),
    path(_SERVER + '<slug:choice>', views.ServerView.as_view(),
         name='server'),
]
