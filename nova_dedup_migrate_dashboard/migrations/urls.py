# SPDX-License-Identifier: Apache-2.0
from django.urls import path

from nova_dedup_migrate_dashboard.instances import views as instances
from nova_dedup_migrate_dashboard.migrations import views

urlpatterns = [
    path('', views.IndexView.as_view(), name='index'),
    path('<uuid:uuid>/', views.DetailView.as_view(), name='detail'),
    path('instances/<uuid:server>/', instances.InstanceView.as_view(),
         name='instance'),
    path('instances/<uuid:server>/estimate',
         instances.EstimateView.as_view(), name='estimate'),
    path('instances/<uuid:server>/migrate', instances.MigrateView.as_view(),
         name='migrate'),
]
